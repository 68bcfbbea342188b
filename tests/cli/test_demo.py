"""`coterie demo` end to end, as a newcomer runs it, with one seed to save time."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from coterie.models.resnet import resnet8
from tests.helpers.common import coterie


def test_the_demo_prints_its_results_and_writes_its_files(tmp_path: Path) -> None:
    result = coterie("demo", "--seeds", 1, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for words in ("the network alone", "with peers (PCL)", "PCL-E", "Shown:", "Not shown:"):
        assert words in result.stdout
    out = tmp_path / "coterie-demo"
    last = json.loads((out / "pcl-0" / "metrics.jsonl").read_text().splitlines()[-1])
    error = last["predictors"]["mean1"]["error"]
    assert error < 6 and f"{error:.2f}" in result.stdout  # it has learned, and the table says what the file says
    student = resnet8(10, 1)
    student.load_state_dict(load_file(out / "student.safetensors"), strict=True)
    assert f"{sum(p.numel() for p in student.parameters()):,}" in result.stdout
    assert torch.isfinite(student(torch.randn(2, 1, 8, 8))).all()
    page = (out / "report.html").read_text()
    assert "<svg" in page and "PCL" in page and "http://" not in page.replace("http://www.w3.org", "")
    again = coterie("demo", "--seeds", 1, cwd=tmp_path)  # everything is there: nothing is trained twice
    assert (
        again.returncode == 0
        and json.loads((out / "pcl-0" / "metrics.jsonl").read_text().splitlines()[-1]) == last
    )
