"""The public names: complete, lazily imported, and seen by type checkers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coterie
from coterie.methods import available

PROGRAM = """
import torch
from torch import nn
import coterie

net = coterie.PeerNet(lambda: nn.Linear(4, 2), peers=3)
method = coterie.PCL(net, temperature=3.0, ramp_up=80)
terms = method([torch.randn(2, 4)] * 3, torch.tensor([0, 1]), 0.0)
loss: torch.Tensor = terms["loss"]
student: nn.Module = method.deploy()
reveal_type(coterie.MeanPeers)
reveal_type(coterie.MultiView)
coterie.PCL(net, temperature="warm")
"""


def test_every_name_can_be_imported_and_every_method_is_public() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name).__name__ == name
    assert set(available()) <= set(coterie.__all__), "list a new method in coterie/__init__.py, for type checkers"
    assert set(coterie.__all__) <= set(dir(coterie))
    with pytest.raises(AttributeError, match="no attribute 'PLC'; it has .*PCL"):
        coterie.PLC  # noqa: B018


def test_importing_coterie_does_not_import_torch() -> None:
    command = "import sys, coterie; dir(coterie); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_mypy_sees_the_types_of_a_user_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "program.py"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert len(errors) == 1 and 'incompatible type "str"; expected "float"' in errors[0], output
    assert "coterie.peers.ema.MeanPeers" in output and "coterie.data.multiview.MultiView" in output
