"""Code of the user's that fails is named in one sentence with its file and line; --traceback shows the rest."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import coterie
from coterie.errors import InputError
from tests.helpers.wrong_calls import SMALL, Ending, call

CODE = """
import torch
from torch import nn
from torch.utils.data import Dataset

from coterie.methods.baseline import Baseline


class NoDict(Baseline):
    def forward(self, views, targets, epoch):
        return self.net(views).logits.mean()


class NoLoss(Baseline):
    def forward(self, views, targets, epoch):
        return {"ce": self.net(views).logits.mean()}


class Vector(Baseline):
    def forward(self, views, targets, epoch):
        return {"loss": self.net(views).logits.mean((0, 2))}


class Number(Baseline):
    def forward(self, views, targets, epoch):
        return {"loss": 3.0}


class Constant(Baseline):
    def forward(self, views, targets, epoch):
        return {"loss": self.net(views).logits.mean().detach()}


class Raising(Baseline):
    def forward(self, views, targets, epoch):
        missing = {}
        return missing["teacher"]


class WrongShapes(Baseline):
    def forward(self, views, targets, epoch):
        return {"loss": torch.ones(3) @ torch.ones(4)}


class Network(nn.Module):
    def __init__(self, num_classes=10, in_channels=1):
        super().__init__()
        self.layer = nn.Linear(in_channels, num_classes)

    def forward(self, x):
        raise RuntimeError("the weights are not here")


class Images(Dataset):
    def __init__(self, train: bool = True) -> None:
        raise OSError("the share is not mounted")

    def __len__(self):
        return 40


class BrokenItems(Images):
    def __init__(self, train: bool = True) -> None:
        self.targets = [0, 1] * 20

    def __getitem__(self, item):
        raise OSError("the share is not mounted")
"""


def line_of(text: str) -> int:
    return CODE.splitlines().index(text) + 1


RAISES, MULTIPLIES = '        return missing["teacher"]', '        return {"loss": torch.ones(3) @ torch.ones(4)}'
METHODS = {
    "NoDict": (2, "it returned Tensor"),
    "NoLoss": (2, "it has no 'loss' among ce"),
    "Vector": (2, "'loss' has the shape (10,)"),
    "Number": (2, "'loss' is float"),
    "Constant": (2, "The 'loss' of Constant depends on no weight that is trained."),
    "Raising": (1, f"(FILE, line {line_of(RAISES)}): KeyError: 'teacher'."),
    "WrongShapes": (
        1,
        f"(FILE, line {line_of(MULTIPLIES)}): RuntimeError",
    ),
}
OTHERS = {
    "--model own_code.py:Network": (2, "the weights are not here"),
    "--data own_code.Images": (2, "own_code.Images(train=True) failed: OSError: the share is not mounted"),
    "--data own_code.BrokenItems": (2, "own_code.BrokenItems gives no images (OSError: the share is not mounted)"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_code.py").write_text(CODE)
    monkeypatch.delitem(__import__("sys").modules, "own_code", raising=False)
    return tmp_path


def train(folder: Path, *words: str) -> Ending:
    with contextlib.chdir(folder):
        return call(["train", *map(str, SMALL), "--out", "run", *words])


@pytest.mark.parametrize("name", METHODS)
def test_a_method(folder: Path, name: str) -> None:
    code, sentence = METHODS[name]
    ending = train(folder, "--method", f"own_code.{name}")
    assert ending.code == code, ending
    assert len(ending.errors.splitlines()) == 1 and ending.errors.startswith("coterie: "), ending.errors
    assert sentence.replace("FILE", str(folder / "own_code.py")) in ending.errors
    assert "Traceback" not in ending.errors + ending.trace
    if code == 2 and name != "Constant":
        first = line_of(f"class {name}(Baseline):") + 1
        assert f"{name}.forward ({folder / 'own_code.py'}, line {first}) must return a dict" in ending.errors


@pytest.mark.parametrize("words", OTHERS)
def test_a_network_and_a_data_set(folder: Path, words: str) -> None:
    code, sentence = OTHERS[words]
    ending = train(folder, *words.split())
    assert ending.code == code and len(ending.errors.splitlines()) == 1, ending
    assert ending.errors.startswith("coterie: ") and sentence in ending.errors
    assert not (folder / "run").exists()
    if "Network" in words:
        line = line_of('        raise RuntimeError("the weights are not here")')
        assert f"({folder / 'own_code.py'}, line {line})" in ending.errors


def test_traceback_shows_the_way(folder: Path) -> None:
    ending = train(folder, "--method", "own_code.Raising", "--traceback")
    lines = ending.errors.splitlines()
    assert ending.code == 1 and lines[0] == "Traceback (most recent call last):"
    assert f'File "{folder / "own_code.py"}"' in ending.errors and lines[-2] == "KeyError: 'teacher'"
    assert lines[-1].startswith("coterie: Your own code failed")
    refused = call(["--traceback", "train", "--epochs", "0", "--out", str(folder / "run")])
    assert refused.code == 2 and "in __post_init__" in refused.errors
    assert refused.errors.splitlines()[-1] == "coterie: --epochs must be at least 1, not 0."


def test_an_error_of_our_own_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.report.table.print_table", None)
    ending = call(["models"])
    expected = (
        "coterie: This is an error in Coterie, please report it: TypeError: 'NoneType' object is not callable."
    )
    assert ending.code == 1 and ending.errors == f"{expected} `--traceback` shows the way to it.\n"


def test_python_raises_the_exception_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    own = __import__("own_code")
    options = {"model": "resnet8", "data": "digits", "data_options": {"limit": 5}, "batch": 10, "epochs": 1}
    with pytest.raises(KeyError, match="teacher"):
        coterie.train(**options, method=own.Raising, out=folder / "run")
    with pytest.raises(InputError, match="fails on a batch") as refused:
        coterie.train(**{**options, "model": own.Network}, method="Baseline", out=folder / "run")
    assert isinstance(refused.value.__cause__, RuntimeError)
