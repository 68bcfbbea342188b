"""Networks that are odd: two names for a module, weights tied across a cut, masks, frozen layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import coterie
from coterie import models
from coterie.config.options import from_options
from coterie.errors import InputError
from coterie.peers.ema import MeanPeers
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet


class Plain(nn.Module):
    """Three layers and a classifier, on 8x8 images; its kin below change one thing each."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(64 if i == 0 else 16, 16) for i in range(3))
        self.head = nn.Linear(16, num_classes)

    def hidden(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b, self.c):
            x = torch.relu(layer(x))
        return x

    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x.flatten(1)))


class TwoNames(Plain):
    """A loop over a list beside the names: the list must be shared as well."""

    def __init__(self, listed: Any = nn.ModuleList) -> None:
        super().__init__()
        self.layers = listed([self.a, self.b, self.c])

    def hidden(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Tied(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.c.weight = self.b.weight


class Auxiliary(Plain):
    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


class Hooked(Plain):
    """Reads a feature that a hook of its own has kept: peers 2 and 3 would keep that of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.zeros(2, 16)
        self.a.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, args: Any, output: Tensor) -> None:
        self.kept = output

    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x.flatten(1)) + self.kept)


class Keyword(Plain):
    def forward(self, x: Tensor) -> Any:
        return self.head(input=self.c(input=torch.relu(self.b(torch.relu(self.a(x.flatten(1)))))))


class Masked(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.zeros(16).index_fill(0, torch.tensor([3]), -torch.inf))

    def hidden(self, x: Tensor) -> Tensor:
        return (super().hidden(x) + self.get_buffer("mask")).softmax(1)


class Frozen(TinyNet):
    """Keeps the first batch-norm out of training, as is usual for pretrained trunks."""

    def train(self, mode: bool = True) -> None:  # type: ignore[override]  # as many write it
        super().train(mode)
        self.stage1[1].eval()


class Loads(Plain):
    """A factory that loads the same weights at each call."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(num_classes)
        for p in self.parameters():
            nn.init.normal_(p, generator=torch.Generator().manual_seed(1))


class Dropped(Loads):
    """Dropout in the trunk alone."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(num_classes)
        self.a = nn.Sequential(self.a, nn.Dropout(0.5))  # type: ignore[assignment]


class Functional(Loads):
    """Dropout that is no module."""

    def hidden(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().hidden(x), 0.5, self.training)


class Table(Plain):
    """Computes a table once, at its first call, and keeps a layer that never runs, tied to the trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None
        self.idle = nn.Linear(16, 16)
        self.idle.weight = self.b.weight

    def hidden(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.a(torch.ones(1, 64))
        return super().hidden(x) + self.kept.detach()


class Growing(Plain):
    """A factory that makes other networks at other times."""

    built = 0

    def __init__(self) -> None:
        super().__init__()
        Growing.built += 1
        self.b = nn.Sequential(*(nn.Linear(16, 16) for _ in range(Growing.built)))  # type: ignore[assignment]


class Extra(Plain):
    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


IMAGES = torch.randn(2, 1, 8, 8)


def test_a_shared_module_with_two_names_is_shared_under_both() -> None:
    net = PeerNet(TwoNames, 2, "c", IMAGES)
    first, second = net.peers
    assert second.a is first.a is second.layers[0] and second.layers[1] is first.b
    assert second.c is second.layers[2] is not first.c
    alone = sum(p.numel() for p in TwoNames().parameters())
    assert sum(p.numel() for p in net.parameters()) == alone + 16 * 16 + 16 + 16 * 10 + 10
    with pytest.raises(InputError, match="peer 2 runs a 'a' of its own .* not in a list of Python's"):
        PeerNet(lambda: TwoNames(list), 2, "c", IMAGES)


def test_layers_tied_across_the_cut_are_refused_and_beside_it_are_not() -> None:
    with pytest.raises(InputError, match=r"at 'c': 'c.weight' is tied to a weight before it. Good cuts: b, head"):
        PeerNet(Tied, 2, "c", IMAGES)
    second = PeerNet(Tied, 2, "b", IMAGES).peers[1]
    assert second.b.weight is second.c.weight


def test_outputs_in_training_are_looked_at_too() -> None:
    with pytest.raises(InputError, match=r"but gave a tuple of 2 in training: wrap it"):
        PeerNet(Auxiliary, 2, "c", IMAGES)


def test_a_feature_kept_by_a_hook_of_the_network_is_noticed() -> None:
    PeerNet(Hooked, 2, None, IMAGES)  # whole networks may
    with pytest.raises(
        InputError, match="peer 2 fails on a second batch of images: RuntimeError: The size of ten"
    ):
        PeerNet(Hooked, 2, "c", IMAGES)


def test_what_is_odd_but_harmless_is_allowed() -> None:
    net = PeerNet(Table, 2, "c", IMAGES)
    assert net.peers[1].b is net.peers[0].b


def test_a_factory_of_different_networks_is_refused() -> None:
    with pytest.raises(InputError, match="makes networks of different structure: 'b' is not always the same"):
        PeerNet(Growing, 2, "c", IMAGES)


def test_a_deployed_network_carries_no_marks_of_our_hooks() -> None:
    student = coterie.PCL(PeerNet(TinyNet, 2, "stage3", torch.randn(2, 3, 8, 8)), beta=0.5).deploy()
    for part in student.modules():
        assert not part._forward_pre_hooks_with_kwargs and not part._forward_hooks_with_kwargs


def test_modules_called_by_keyword_are_tapped() -> None:
    net = PeerNet(Keyword, 2, "c", IMAGES)
    peers = net(IMAGES)
    assert net.shapes["features"] == (torch.Size([16]),) * 2 and net.shapes["trunk"] == (torch.Size([16]),)
    assert peers.features[0] is not None
    assert torch.allclose(net.peers[0].head(peers.features[0]), peers.logits[0])


@pytest.mark.parametrize("batch_norm", ["own", "average"])
def test_an_infinite_mask_is_copied_not_averaged(batch_norm: Any) -> None:
    source = Masked()
    mean = MeanPeers(source, 0.5, batch_norm)
    for _ in range(3):
        mean.update(source)
    assert torch.equal(mean.average.get_buffer("mask"), source.get_buffer("mask"))
    assert mean.average.eval()(IMAGES).isfinite().all()


def test_batch_norm_that_the_network_freezes_is_frozen_in_its_average() -> None:
    method = coterie.PCL(PeerNet(Frozen, 2, "stage3", torch.randn(2, 3, 8, 8)), beta=0.5).train()
    images = torch.randn(6, 3, 8, 8) + 1
    for _ in range(3):
        method([images, images.flip(-1)], torch.randint(5, (6,)), 0)
        method.after_step()
    student, mean = method.net.peers[0], method.mean.average.net.peers[0]
    assert torch.equal(mean.stage1[1].running_mean, torch.zeros(8))
    assert torch.equal(mean.stage1[1].running_mean, student.stage1[1].running_mean)
    assert not torch.equal(mean.stage2[1].running_mean, torch.zeros(16))  # the others keep their own


@pytest.mark.parametrize(
    ("name", "method", "more", "stays"),
    [
        ("Loads", "DML", {}, True),
        ("Loads", "DML", {"branch_noise": 0.1}, False),
        ("Loads", "KDCL", {}, False),  # a view for each
        ("Loads", "KDCL", {"data.augment": []}, True),
        ("Dropped", "KDCL", {"data.augment": []}, False),
        ("Dropped", "CL", {}, True),  # what is dropped in the trunk is the same for all
        ("Functional", "DML", {}, False),
        ("Loads", "ONE", {}, False),  # its gate tells the peers apart
        ("Loads", "OKDDip", {}, True),
        ("Plain", "DML", {}, False),
    ],
)
def test_whether_peers_would_peers_stay_identical_is_seen_in_their_weights(
    name: str, method: str, more: dict[str, Any], stays: bool
) -> None:
    options: dict[str, Any] = {"model": f"{__name__}:{name}", "data": "digits", "method": method, **more}
    if method not in ("DML", "KDCL"):
        options["cut"] = "c"
    if "data.augment" in options:
        options["data"] = {"class_path": "digits", "init_args": {"augment": options.pop("data.augment")}}
    recipe = from_options(options)
    if stays:
        with pytest.raises(InputError, match=f"would stay equal: {method} needs `branch_noise`"):
            recipe.build()
    else:
        first, second, _ = recipe.build().net.peers
        equal = name != "Plain" and not more.get("branch_noise")
        assert torch.equal(first.head.weight, second.head.weight) == equal


def test_branch_noise_starts_from_the_first_peers_weights() -> None:
    net = from_options({"model": "resnet8", "data": "digits", "method": "DML", "branch_noise": 0.05}).build().net
    first, second, _ = (peer.fc.weight for peer in net.peers)
    assert 0.03 < ((second - first).std() / first.std()).item() < 0.07


def test_what_no_safetensors_file_can_hold_is_refused_before_training() -> None:
    with pytest.raises(InputError, match="keeps '_extra_state' among its weights, which is no tensor"):
        from_options({"model": f"{__name__}:Extra", "data": "digits", "method": "Baseline"}).build()


def test_attention_starts_anew_and_bare_parameters_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Attends(nn.Module):
        def __init__(self, bare: bool) -> None:
            super().__init__()
            self.stem = nn.Linear(8, 16)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 5)
            self.table = nn.Parameter(torch.randn(8, 16)) if bare else None

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x[:, 0])
            x = self.attention(x, x, x)[0]
            logits: Tensor = self.head((x if self.table is None else x + self.table).mean(1))
            return logits

    first, second = PeerNet(Attends(bare=False), 2, None, IMAGES).peers
    assert not torch.equal(first.attention.in_proj_weight, second.attention.in_proj_weight)
    assert capsys.readouterr().err == ""
    PeerNet(Attends(bare=True), 2, None, IMAGES)
    assert "warning: table cannot be drawn anew and start equal in all peers" in capsys.readouterr().err


def test_weights_of_a_file_and_noise_together(tmp_path: Path) -> None:
    weights = models.factory("resnet8", 10, 1)().state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    options = {"model": "resnet8", "data": "digits", "init": str(tmp_path / "w.safetensors"), "branch_noise": 0.1}
    first, second, _ = from_options(options).build().net.peers
    assert torch.equal(first.fc.weight, weights["fc.weight"])
    assert not torch.equal(second.fc.weight, weights["fc.weight"])
