"""Networks as people write them: flattened with `view`, weights tied, doubles, not to be compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from coterie import models
from coterie.config.options import from_options
from coterie.errors import InputError
from coterie.methods import available
from coterie.peers.layout import channels_last
from coterie.peers.net import PeerNet
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet, refused


class Flattens(nn.Module):
    """Flattens its map with `view`, and ties two of its layers: both are ordinary code."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.hidden, self.again = nn.Linear(256, 256), nn.Linear(256, 256)
        self.again.weight = self.hidden.weight
        self.head = nn.Linear(256, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        logits: Tensor = self.head(self.again(torch.relu(self.hidden(x.view(x.size(0), -1)))))
        return logits


@pytest.mark.parametrize("method", ["PCL", "KD"])
def test_a_network_that_flattens_with_view_and_ties_weights_is_trained(method: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": f"{__name__}:Flattens", "data": "digits", "epochs": 1, "method": method}
    if method == "KD":
        train_recipe(from_options({**options, "method": "Baseline"}), tmp_path / "teacher")
        options["method"] = {"class_path": "KD", "init_args": {"teacher": str(tmp_path / "teacher")}}
    student = train_recipe(from_options(options), tmp_path / "run").deploy()
    Flattens().load_state_dict(load_file(tmp_path / "run" / "student.safetensors"))
    assert type(student) is Flattens and student.again.weight is student.hidden.weight


def test_networks_that_can_are_channels_last() -> None:
    able, unable = models.factory("resnet8", 10, 1)(), Flattens()
    channels_last(able, [able], (1, 8, 8))
    channels_last(unable, [unable], (1, 8, 8))
    weight = able.stage2[0].body[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert unable.stem.weight.is_contiguous()


@pytest.mark.parametrize(("method", "stays"), [("DML", True), ("CL", True), ("PCL", False), ("KDCL", False)])
def test_peers_that_would_peers_stay_identical_are_refused(method: str, stays: bool, tmp_path: Path) -> None:
    save_file(models.factory("resnet8", 10, 1)().state_dict(), tmp_path / "w.safetensors")
    options = {"model": "resnet8", "data": "digits", "method": method, "init": str(tmp_path / "w.safetensors")}
    if stays:
        with pytest.raises(InputError, match=f"would stay equal: {method} needs `branch_noise`, such as 0.05"):
            from_options(options).build()
    else:
        from_options(options).build()
    first, second, _ = from_options({**options, "branch_noise": 0.05}).build().net.peers
    assert not torch.equal(first.fc.weight, second.fc.weight)


@pytest.mark.parametrize("name", available())
def test_heads_are_made_where_and_in_the_format_the_network_is(name: str) -> None:
    cls: Any = available()[name]
    cut = "stage3" if cls.trains == "branches" else None
    net = PeerNet(lambda: TinyNet().double(), 1 if cls.trains == "one network" else 3, cut)
    method = cls(net, **({"teacher": TinyNet()} if name == "KD" else {}))
    method.prepare()
    views = [torch.randn(4, 3, 8, 8).double() for _ in range(method.views)]
    terms = method(views if len(views) > 1 else views[0], torch.randint(5, (4,)), 80)
    assert {p.dtype for p in method.parameters()} == {torch.float64} and terms["loss"].isfinite()


def test_similarities_stay_whole_under_autocast() -> None:
    """Up to 1/0.07 = 14: in bfloat16 their steps would be of a sixteenth."""
    method: Any = available()["MCL"](PeerNet(TinyNet, 2))
    images = torch.randn(6, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert method.similarities(method.net(images)).dtype == torch.float32


class Branching(nn.Module):
    """Looks at its numbers while it computes: no single graph."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(64, 32), nn.Linear(32, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x.flatten(1))
        logits: Tensor = self.head(x if float(x.detach().sum()) > 0 else -x)
        return logits


def test_a_network_that_cannot_be_compiled_is_refused(tmp_path: Path) -> None:
    options = ["--model", f"{__name__}:Branching", "--data", "digits", "--epochs", 1, "--method", "Baseline"]
    message = refused("train", *options, "--compile", "--out", tmp_path / "run")
    assert message.startswith("The peers cannot be compiled (") and message.endswith("): leave out --compile.")
