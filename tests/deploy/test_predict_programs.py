"""Programs (.pt2): opened only if the user trusts whoever wrote them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from coterie.deploy.exported import open_exported
from coterie.errors import InputError
from tests.helpers.common import printed, refused
from tests.helpers.deployables import Bomb


def test_a_program_needs_trust(good: dict[str, Path], tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    assert refused("predict", good["pt2"], tmp_path / "a.png") == (
        f"{good['pt2']} is a .pt2 program, and loading one can run code of whoever wrote it: add --trust if you "
        "trust them; ONNX and safetensors files need no trust."
    )
    trusted = printed("predict", good["pt2"], tmp_path / "a.png", "--trust", "--csv")[0]
    for kind in ("onnx", "safetensors"):
        assert (
            printed("predict", good[kind], tmp_path / "a.png", "--csv")[0].splitlines()[0]
            == (trusted.splitlines()[0])
        )


def test_no_code_of_a_program_is_run_without_trust(good: dict[str, Path], tmp_path: Path) -> None:
    marker, bomb = tmp_path / "ran", io.BytesIO()
    torch.save(Bomb(marker), bomb)
    with zipfile.ZipFile(good["pt2"]) as old, zipfile.ZipFile(tmp_path / "h.pt2", "w") as new:
        for name in old.namelist():
            new.writestr(name, bomb.getvalue() if "/data/sample_inputs/" in name else old.read(name))
    with pytest.raises(InputError, match="can run code of whoever wrote it"):
        open_exported(tmp_path / "h.pt2")
    assert not marker.exists()
    torch.load(io.BytesIO(bomb.getvalue()), weights_only=False)
    assert marker.exists()  # it would have


def test_a_trusted_file_that_is_damaged(good: dict[str, Path], tmp_path: Path) -> None:
    content = good["pt2"].read_bytes()
    (tmp_path / "half.pt2").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"half\.pt2 is damaged"):
        open_exported(tmp_path / "half.pt2", trust=True)
