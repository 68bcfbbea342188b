"""Bad input for methods gives one clear sentence, and peers of different architectures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie
from coterie.cli.main import main
from coterie.config.options import from_file, from_options
from coterie.errors import InputError
from coterie.methods import available
from coterie.methods.losses import ramp_up
from coterie.methods.task import SINGLE_LABEL, MultiLabel
from coterie.peers.net import PeerNet
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet
from tests.helpers.reference import kl


class Flat(nn.Module):
    """A network without a spatial map after its cut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.hidden = nn.Linear(8, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.hidden(torch.relu(self.stem(x)).mean((2, 3)))))
        return logits


class NoLinear(nn.Module):
    """A network that ends in a 3x3 convolution: there is no feature of which the logits are linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.head = nn.Conv2d(8, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.stem(x))).mean((2, 3))
        return logits


MANY = [name for name, method in available().items() if method.least_peers > 1]


def test_which_methods_need_company() -> None:
    assert set(MANY) == {"DML", "CL", "ONE", "FFL", "OKDDip", "KDCL", "MCL"}


@pytest.mark.parametrize("name", MANY)
def test_too_few_peers(name: str) -> None:
    net = PeerNet(TinyNet, 1, "stage3" if available()[name].trains == "branches" else None)
    with pytest.raises(InputError, match=f"^{name} needs at least 2 peers, not 1.$"):
        getattr(coterie, name)(net)


@pytest.mark.parametrize(
    ("name", "net", "sentence"),
    [
        ("FFL", lambda: PeerNet(Flat, 3, "hidden"), "needs a network with a spatial map"),
        ("FFL", lambda: PeerNet([TinyNet, lambda: TinyNet(width=12)]), "maps of one shape"),
        ("ONE", lambda: PeerNet(TinyNet, 3), "it needs a cut"),
        ("OKDDip", lambda: PeerNet([TinyNet, lambda: TinyNet(width=12)]), "Linear classifiers alike"),
        ("OKDDip", lambda: PeerNet(NoLinear, 3, "head"), "Linear classifiers alike"),
        ("PCL", lambda: PeerNet(NoLinear, 3, "head"), "ends in a Linear classifier"),
        ("MCL", lambda: PeerNet(NoLinear, 3), "end in a Linear classifier"),
    ],
)
def test_networks_that_do_not_serve(name: str, net: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        getattr(coterie, name)(net())  # type: ignore[operator]


def test_peers_with_different_classes() -> None:
    with pytest.raises(InputError, match="the same number of classes, not 5, 7"):
        PeerNet([TinyNet, lambda: TinyNet(classes=7)])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"method": "ONE", "peers": "resnet8,resnet14"},
            "ONE trains branches of one network: give",
        ),
        ({"method": "Baseline", "peers": "resnet8,resnet14"}, "Baseline trains a single network"),
        ({"method": "DML", "peers": "resnet8,resnet14", "cut": "stage3"}, "leave out `cut`"),
        ({"method": "DML", "peers": "resnet8,resnet41"}, "There is no model 'resnet41'; did you mean"),
        ({"method": "DML", "peers": "resnet8"}, "DML needs at least 2 peers, not 1"),
        ({"method": "ONE", "peers": 1}, "ONE needs at least 2 peers, not 1"),
        ({"method": "DML", "peers": 0}, "`peers` must be at least 1"),
        ({"method": "DML", "method.temperature": 0}, "`method.temperature` must be greater than 0, not 0"),
    ],
)
def test_recipes_that_make_no_sense(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_options({"model": "resnet8", **options}).build()


@pytest.mark.parametrize("name", ["Baseline", "DML", "PCL"])
def test_no_cut_may_always_be_asked_for(name: str) -> None:
    net = from_options({"model": "resnet8", "method": name, "cut": "none"}).build().net
    assert net.split is None and net.size == (1 if name == "Baseline" else 3)


def test_refusals_as_users_see_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    for arguments, sentence in (
        (["--method", "KDCL", "--method.teacher", "best"], "expects one of naive, mean, min_logit, not 'best'"),
        (["--method", "nobody.Knows"], "cannot be imported: No module named 'nobody'"),
        (["--method", "DML", "--peers", "resnet8,resnet41"], "There is no model 'resnet41'"),
        (["--method", "PCL", "--method.temperature", "-3"], "temperature must be greater than 0, not -3.0."),
    ):
        with pytest.raises(SystemExit) as end:
            main(["train", "--out", out, *arguments])
        assert end.value.code == 2
        message = capsys.readouterr().err
        assert sentence in message and len(message.splitlines()) == 1
    assert not Path(out).exists()


@pytest.mark.parametrize("name", ["DML", "KDCL", "MCL"])
def test_different_architectures(name: str) -> None:
    """A wide and a narrow network, one step: the wide one, named first, is deployed."""
    net = PeerNet([lambda: TinyNet(width=12), TinyNet])
    method = getattr(coterie, name)(net)
    views = [torch.randn(6, 3, 8, 8) for _ in range(method.views)]
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    terms = method(views if len(views) > 1 else views[0], labels, 0)
    terms["loss"].backward()
    assert all(p.grad is not None for p in method.parameters())
    if name == "DML":
        z = net(views[0]).logits.detach().double().numpy()
        assert terms["distil_peers"].item() == pytest.approx(kl(z[0], z[1], 3.0) + kl(z[1], z[0], 3.0), rel=1e-4)
    TinyNet(width=12).load_state_dict(method.deploy().state_dict())


def test_different_architectures_by_name(tmp_path: Path) -> None:
    """`--peers resnet14,resnet8` on the command line, continued by the same command, and the run's files."""
    from safetensors.torch import load_file

    out = tmp_path / "run"
    arguments = ["--method", "DML", "--peers", "resnet14,resnet8", "--data.limit", "8", "--batch", "40", "--ema"]
    for _ in range(2):
        main(["train", *arguments, "--epochs", "1", "--out", str(out)])
    recipe = from_file(out / "config.yaml")
    assert recipe.model == "resnet14" and recipe.config["model"] == "resnet14"
    first = recipe.build().net.peers[0]
    first.load_state_dict(load_file(out / "student.safetensors"))
    assert recipe.build().net.size == 2


@pytest.mark.parametrize("name", [n for n, method in available().items() if n != "KD"])
def test_every_method_by_name_with_averages(name: str, tmp_path: Path) -> None:
    """One epoch through the real recipe and loop; each evaluation has what the issue asks for."""
    import json

    options = {"class_path": "digits", "init_args": {"limit": 6}}
    recipe = from_options(
        {"method": name, "model": "resnet8", "data": options, "epochs": 1, "batch": 30, "ema": True}
    )
    method = train_recipe(recipe, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert set(record["predictors"]) == set(method.predictors())
    several = {"peer", "mean"} if method.net.size > 1 else set()
    assert set(record["diversity"]) == set(record["agreement"]) == several
    assert all(np.isfinite(list(record["terms"].values())))
    if "ramp_up" in recipe.config["method"].get("init_args", {}):
        assert recipe.config["method"]["init_args"]["ramp_up"] == pytest.approx(80 / 300)


@pytest.mark.parametrize("task", [SINGLE_LABEL, MultiLabel()])
@pytest.mark.parametrize("temperature", [0, -1.0, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused_in_a_loop_of_ones_own(task, temperature):
    z = torch.randn(4, 3)
    with pytest.raises(InputError, match="`temperature` must be greater than 0, not "):
        task.divergence(z, z, temperature)
    with pytest.raises(InputError, match="`temperature` must be greater than 0, not "):
        task.distil_loss(z, z, temperature)


@pytest.mark.parametrize("length", [-1.0, math.nan, math.inf])
def test_a_ramp_up_that_is_none_is_refused(length):
    with pytest.raises(InputError, match="`ramp_up` is a number of epochs, from 0 on, not "):
        ramp_up(3, length)
