"""Where a network can be cut: the list, its numbers and the default."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from coterie import models
from coterie.cli.choosing import training_costs
from coterie.peers.bottlenecks import bottlenecks
from coterie.peers.cost import macs, macs_by_layer, parameters
from coterie.peers.cuts import default_cut, list_cuts
from tests.helpers.common import TinyNet, coterie, printed, refused


class Skips(nn.Module):
    """b runs beside a shortcut, c receives everything, e beside a tensor carried past it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e, self.f = (nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.c(x + self.b(x))
        carried, x = self.d(x).chunk(2, dim=1)
        return self.f(torch.cat([carried, self.e(torch.cat([x, x], 1))[:, :2]], 1))


def test_bottlenecks_are_the_modules_no_path_goes_around() -> None:
    assert bottlenecks(Skips(), torch.randn(2, 4), list("abcdef")) == ["a", "c", "d", "f"]


def test_bottlenecks_by_another_way() -> None:
    """A module is a bottleneck if fixing its input fixes the logits, whatever the image."""
    model, names = Skips().eval(), list("abcdef")
    first, second = torch.randn(2, 2, 4)
    held = []
    for name in names:
        inputs: list[Tensor] = []

        def fix(module: nn.Module, args: tuple[Tensor], inputs: list[Tensor] = inputs) -> tuple[Tensor]:
            inputs.append(args[0])
            return (inputs[0],)

        handle = model.get_submodule(name).register_forward_pre_hook(fix)
        if torch.equal(model(first), model(second)):
            held.append(name)
        handle.remove()
    assert held == bottlenecks(model, first, names)


def test_listing_leaves_the_network_as_it_was() -> None:
    model = TinyNet().train()
    model.stage1.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    list_cuts(model, torch.randn(1, 3, 8, 8))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.training and not model.stage1[0].weight.requires_grad and model.head.weight.requires_grad
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_numbers_of_every_cut_add_up() -> None:
    model = models.factory("resnet20", 10, 3)()
    cuts = list_cuts(model, torch.randn(1, 3, 32, 32))
    names = [
        "stage1",
        "stage1.1",
        "stage1.2",
        "stage2",
        "stage2.1",
        "stage2.2",
        "stage3",
        "stage3.1",
        "stage3.2",
        "fc",
    ]
    assert [cut.name for cut in cuts] == names
    for cut in cuts:
        assert cut.shared_parameters + cut.peer_parameters == parameters(model)
        assert cut.shared_macs + cut.peer_macs == macs(model, (3, 32, 32))
    stage3 = next(cut for cut in cuts if cut.name == "stage3")
    assert stage3.peer_parameters == parameters(model.stage3) + parameters(model.fc)
    assert stage3.peer_macs == macs(nn.Sequential(model.stage3), (32, 16, 16)) + 640


class Windows(nn.Module):
    """Attention in windows, as Swin has it: its layers have windows of all images in front; and torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.fc = nn.Linear(4, 12), nn.Linear(4, 10)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, kdim=12, vdim=12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2).mT.reshape(-1, 16, 4)  # four windows of 16 tokens for each image
        key = self.qkv(x)
        x = self.attention(x, key, value=key)[0]
        logits: torch.Tensor = self.fc(x.reshape(-1, 64, 4).mean(1))
        return logits


def test_windows_and_attention_are_counted() -> None:
    projections = 64 * (4 * 4 + 12 * 4 + 12 * 4 + 4 * 4)  # of query, key, value and result
    attention = (
        projections + 2 * 4 * 16 * 16 * 4
    )  # in each of 4 windows, queries times keys, and weights times values
    assert macs(Windows(), (4, 8, 8)) == 64 * 4 * 12 + attention + 40
    counts = macs_by_layer(Windows(), torch.randn(3, 4, 8, 8))
    assert counts == {"qkv": 64 * 4 * 12, "attention": attention, "fc": 40}


def test_fused_attention_is_counted() -> None:
    """torch's encoder layer has a fast path for evaluation, timm's blocks call the fused attention."""
    tokens, width, hidden = 5, 16, 32
    layer = nn.TransformerEncoderLayer(width, 2, hidden, batch_first=True)
    projections, products = 4 * tokens * width**2, 2 * tokens**2 * width
    assert macs(layer, (tokens, width)) == projections + products + 2 * tokens * width * hidden
    vit = models.factory("timm:test_vit", 10, 3)()
    counts = macs_by_layer(vit, torch.randn(1, 3, 64, 64))
    tokens, width = 4 * 4 + 1, 64  # patches of 16 pixels and the class token
    assert counts["blocks.0.attn"] == 2 * tokens**2 * width  # beside those of its layers
    assert counts["blocks.0.attn.qkv"] == 3 * tokens * width**2


class Pair(nn.Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        return super().forward(x), None


def test_a_layer_that_gives_something_else_is_counted() -> None:
    class Two(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self[1](self[0](x))[0]
            return logits

    assert macs(Two(nn.Linear(4, 4), Pair(4, 4)), (4,)) == 32


class Twice(nn.Module):
    """A layer with two names that runs under both, in a list, and a product in the network's own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), self.first])
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.fc(x @ self.first.weight)
        return logits


def test_work_belongs_to_the_innermost_module_by_its_first_name() -> None:
    counts = macs_by_layer(Twice(), torch.randn(2, 4))
    assert counts == {"first": 32, "layers.0": 16, "": 16, "fc": 12}


def test_costs_are_those_of_the_specification() -> None:
    """At a trunk of two thirds of the work: ONE 1.7, DML 3, PCL 4, on one view 2.2."""
    cuts = list_cuts(models.factory("resnet32", 10, 3)(), torch.randn(1, 3, 32, 32))
    stage3 = next(cut for cut in cuts if cut.name == "stage3")
    assert stage3.share == pytest.approx(1 / 3, abs=0.01)
    costs = {name: round(value, 1) for name, value in training_costs(stage3.share, 3).items()}
    assert costs == {"PCL": 4.0, "PCL_one_view": 2.2, "ONE": 1.7, "DML": 3.0}


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("resnet110", "stage3"),
        ("vgg16", "block5"),
        ("densenet40_12", "block3"),
        ("torchvision:resnet18", "layer4"),
        ("timm:test_resnet", "layer3"),  # its layer4 is less than a tenth of the work
        ("timm:test_vit", "blocks.4"),
    ],
)
def test_default_is_the_papers_cut_or_the_last_stage(name: str, cut: str) -> None:
    assert default_cut(models.factory(name, 10, 3)(), torch.randn(1, 3, 160, 160)) == cut


def test_every_listed_cut_can_be_made() -> None:
    from coterie import PeerNet

    example = torch.randn(2, 3, 8, 8)
    for cut in list_cuts(TinyNet(), example):
        net = PeerNet(TinyNet, 2, cut.name, example)
        assert parameters(net) == cut.shared_parameters + 2 * cut.peer_parameters


def test_command_prints_a_table_with_the_default_marked_and_json() -> None:
    table = coterie("cuts", "resnet8")
    assert table.returncode == 0 and "stage3 (default)" in table.stdout
    assert "…" not in table.stdout and f"{macs(models.factory('resnet8', 10, 3)(), (3, 32, 32)):,}" in table.stdout
    listing = json.loads(printed("cuts", "timm:test_vit", "--size", "64", "--classes", "7", "--json")[0])
    assert listing["input"] == [3, 64, 64] and listing["default"] == "blocks.4"
    assert [cut["name"] for cut in listing["cuts"]][-1] == "head"
    assert listing["cuts"][-1]["peer_parameters"] == 7 * 64 + 7


def test_bad_input_of_the_command() -> None:
    assert "--size" in refused("cuts", "resnet8", "--size", "3x32")
    assert "--size" in refused("cuts", "resnet8", "--size", "99999")
    assert "must be at least 1" in refused("cuts", "resnet8", "--peers", "0")
    assert "must be at least 1" in refused("cuts", "resnet8", "--classes", "0")
    assert "did you mean 'resnet32'" in refused("cuts", "resnet33")
