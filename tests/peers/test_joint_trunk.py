"""All views as one batch through the shared modules: who gets which part, and who cannot."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import coterie
from coterie import models
from coterie.errors import InputError
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet

EXAMPLE = torch.randn(4, 3, 8, 8)


class Prototypes(nn.Module):
    """A table of six rows, which has no batch dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 16))

    def forward(self) -> Tensor:
        return self.table * 2


class WithTable(TinyNet):
    """The branch reads a table that a shared module returns."""

    def __init__(self) -> None:
        super().__init__()
        self.prototypes = Prototypes()

    def forward(self, x: Tensor) -> Tensor:
        table = self.prototypes()
        x = torch.relu(self.stage3(self.stage2(self.stage1(self.stem(x))))).mean((2, 3))
        logits: Tensor = self.head(x + (x @ table.T).softmax(1) @ table)
        return logits


class Several(nn.Module):
    """A table, the batch, and in training one tensor more."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(8, 16), nn.Parameter(torch.randn(12, 16))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        auxiliary = {"a": self.table[:6] + 1} if self.training else {}
        return {**auxiliary, "table": self.table, "tokens": self.layer(x)}


class PositionsFirst(nn.Module):
    """Tokens as (positions, batch, width), as PyTorch's own transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body, self.head = Several(), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.embed(x.flatten(1, 2).movedim(1, 0))  # 24 positions
        x = self.body(embedded["tokens"]).mean(0)
        logits: Tensor = self.head(x + (x @ embedded["table"].T).softmax(1) @ embedded["table"])
        return logits


class Centred(TinyNet):
    """Subtracts the mean over the batch, in evaluation too: another batch, another result."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage1(self.stem(x))
        return self.head(torch.relu(self.stage3(self.stage2(self.centre(x)))).mean((2, 3)))  # type: ignore[no-any-return]

    def __init__(self) -> None:
        super().__init__()
        self.centre = Centre()


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Similar(TinyNet):
    """A shared module that compares the images of a batch with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.compare = Compare()

    def forward(self, x: Tensor) -> Tensor:
        similar = self.compare(x)
        return super().forward(x) + 0 * similar.sum()


class Compare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ x.flatten(1).T


@pytest.mark.parametrize("peers", [2, 3, 6])
@pytest.mark.parametrize(("make", "cut"), [(WithTable, "stage2"), (PositionsFirst, "body")])
def test_only_what_carries_the_batch_is_divided(make: type[nn.Module], cut: str, peers: int) -> None:
    net = PeerNet(make, peers, cut, EXAMPLE)
    views = [torch.randn(5, 3, 8, 8) for _ in range(peers)]
    for training in (False, True):
        net.train(training)
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()  # joint statistics are meant to differ
        expected = torch.stack([peer(view) for peer, view in zip(net.peers, views, strict=True)])
        torch.testing.assert_close(net(views, joint=True).logits, expected)


def test_the_windows_of_swin_stay_with_their_images() -> None:
    options = {"depths": (1, 1, 1, 1), "embed_dim": 24}
    make = models.factory("timm:swin_tiny_patch4_window7_224", 3, 3, options)
    net = PeerNet(make, 2, "layers.1.blocks.0", torch.randn(1, 3, 224, 224)).eval()
    views = [torch.randn(2, 3, 224, 224) for _ in range(2)]
    with torch.no_grad():
        expected = torch.stack([peer(view) for peer, view in zip(net.peers, views, strict=True)])
        torch.testing.assert_close(net(views, joint=True).logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Centred, r"peer \d's logits differ by .* from those for its own view"),
        (Similar, "'compare' returns a tensor of which several dimensions grow with the images"),
    ],
)
@pytest.mark.parametrize("example", [EXAMPLE, torch.zeros(1, 3, 8, 8)])
def test_what_cannot_be_one_batch_is_refused_before_training(
    make: type[nn.Module], reason: str, example: Tensor
) -> None:
    net = PeerNet(make, 2, "stage2", example)
    coterie.PCL(net)  # which does not want it
    sentence = (
        rf"Cut at 'stage2', the views of all peers cannot be one batch .* \({reason}\): leave out joint_trunk"
    )
    with pytest.raises(InputError, match=sentence):
        coterie.PCL(net, joint_trunk=True)
    with pytest.raises(InputError, match=sentence):
        net([EXAMPLE, EXAMPLE], joint=True)
    coterie.PCL(net, joint_trunk=True, input_augmentation=False)  # one view for all


def test_the_check_leaves_no_trace() -> None:
    net = PeerNet(TinyNet, 3, "stage2", EXAMPLE).train()
    before = copy.deepcopy(net.state_dict())
    torch.manual_seed(7)
    net.check_joint()
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(drawn, torch.rand(3))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(part.training for part in net.modules())
    assert net([EXAMPLE] * 3, joint=True, trunk_gradient=0.5).logits.requires_grad
