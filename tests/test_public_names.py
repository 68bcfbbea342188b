"""The public names: complete, lazily imported, and seen by type checkers."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import coterie
from coterie.methods import available

PROGRAM = """\
from functools import partial
import torch
from torch import nn
import coterie

def make_model(num_classes: int) -> nn.Module:
    return nn.Linear(4, num_classes)

net = coterie.PeerNet(lambda: nn.Linear(4, 2), peers=3)
method = coterie.PCL(net, temperature=3.0, ramp_up=80)
terms = method([torch.randn(2, 4)] * 3, torch.tensor([0, 1]), 0.0)
loss: torch.Tensor = terms["loss"]
student: nn.Module = method.deploy()
reveal_type(coterie.MeanPeers)
reveal_type(coterie.MultiView)
images, labels = torch.zeros(8, 1, 8, 8), torch.zeros(8, dtype=torch.long)
run = coterie.train(
    model=make_model,
    data=((images, labels), (images, labels)),
    method=partial(coterie.PCL, temperature=4.0),
    optimizer=partial(torch.optim.AdamW, lr=1e-3),
    schedule=coterie.Cosine(),
    mix=coterie.CutMix(probability=0.25),
    out="runs/mine",
)
reveal_type(run)
reveal_type(run.error)
reveal_type(coterie.load("runs/mine").predictors())
coterie.PCL(net, temperature="warm")
coterie.train(out="runs/mine", epochs="many")
"""


def test_every_name_can_be_imported_and_every_method_is_public() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name).__name__ == name
    assert set(available()) <= set(coterie.__all__), "list a new method in coterie/__init__.py, for type checkers"
    assert set(coterie.__all__) <= set(dir(coterie))
    with pytest.raises(AttributeError, match="no attribute 'PLC'; it has .*PCL"):
        coterie.PLC  # noqa: B018


def test_help_shows_the_options_of_train() -> None:
    text = pydoc.render_doc(coterie.train)
    assert "epochs: 'int' = 300" in text and "the run directory" in text


def test_importing_coterie_does_not_import_torch() -> None:
    command = "import sys, coterie; dir(coterie); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


def errors_of(checker: list[str], folder: Path) -> tuple[list[str], str]:
    """Run a type checker over the program; return its errors and all that it printed."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", *checker, "program.py"]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout
    return [line for line in output.splitlines() if " error: " in line], output


def test_mypy_sees_the_types_of_a_user_program(tmp_path: Path) -> None:
    errors, output = errors_of(["mypy", "--ignore-missing-imports"], tmp_path)
    assert len(errors) == 2 and 'incompatible type "str"; expected "float"' in errors[0], output
    assert 'Argument "epochs" to "train" has incompatible type "str"' in errors[1], output
    assert "coterie.peers.ema.MeanPeers" in output and "coterie.data.multiview.MultiView" in output
    assert '"coterie.experiments.run.Run"' in output


def test_pyright_sees_the_types_of_a_user_program(tmp_path: Path) -> None:
    pyright = ["basedpyright", "--pythonpath", sys.executable]  # with Node.js in its wheel
    errors, output = errors_of(pyright, tmp_path)
    assert len(errors) == 2 and '"temperature" of type "float"' in errors[0], output
    assert '"epochs" of type "int"' in errors[1], output
    assert 'Type of "run" is "Run"' in output and 'Type of "coterie.MultiView" is "type[MultiView]"' in output
