"""`coterie demo` end to end, as a newcomer runs it, with one seed to save time."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coterie.models.resnet import resnet8
from tests.helpers.common import coterie, printed
from tests.helpers.report import Page


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's directory, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    result = coterie("demo", "--seeds", 1, cwd=folder, COLUMNS="80")
    assert result.returncode == 0, result.stderr
    return folder / "coterie-demo", result.stdout


def test_the_demo_prints_its_results_and_writes_its_files(demo: tuple[Path, str]) -> None:
    out, stdout = demo
    for words in ("the network alone", "with peers (PCL)", "PCL-E", "Not shown:"):
        assert words in stdout
    last = json.loads((out / "pcl-0" / "metrics.jsonl").read_text().splitlines()[-1])
    error = last["predictors"]["mean1"]["error"]
    assert error < 6 and f"{error:.2f}" in stdout  # it has learned, and the table says what the file says
    student = resnet8(10, 1)
    student.load_state_dict(load_file(out / "student.safetensors"), strict=True)
    assert f"{sum(p.numel() for p in student.parameters()):,}" in stdout
    assert torch.isfinite(student(torch.randn(2, 1, 8, 8))).all()
    page = (out / "report.html").read_text()
    assert "<svg" in page and "PCL" in page and "http://" not in page.replace("http://www.w3.org", "")
    with contextlib.chdir(out.parent):
        printed("demo", "--seeds", 1)  # everything is there: nothing is trained twice
    assert json.loads((out / "pcl-0" / "metrics.jsonl").read_text().splitlines()[-1]) == last


def test_terminal_and_page_of_the_demo_say_the_same(demo: tuple[Path, str]) -> None:
    out, stdout = demo
    source = (out / "report.html").read_text()
    said = " ".join(stdout.split())
    summary = re.search(r'<div class="summary">(.*?)</div>', source, re.S)
    assert summary is not None
    sentences = re.findall(r"<p>(.*?)</p>", summary[1])
    assert len(sentences) >= 3 and "one seed, which says nothing about chance" in sentences[0]
    for sentence in sentences:
        assert sentence in said
    shown = Page(source).tables["Test error after the last epoch, one seed"]
    rows = [re.split(r"\s*│\s*", line)[1:-1] for line in stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell, _ in row] for row in shown[1:]] == [[c.strip() for c in row] for row in rows]
