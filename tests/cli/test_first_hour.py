"""A practitioner's first hour: a folder of photographs becomes a verdict, a page, an ONNX file and a prediction.

Every line is typed into a shell at 80 columns, and has 60 seconds; on a machine with other work, as much longer.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest

from tests.helpers.photographs import CLASSES, photographs
from tests.helpers.report import Page, records

SECONDS = 60
COMPARE = (
    "coterie compare --data photos --model resnet8 --methods Baseline,PCL --seeds 2 --out cmp "
    "--data.size 32 --data.workers 2 --epochs 2 --batch 16 --processes 2"
)
Shell = Callable[[str], str]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Type a line where the folder `photos` is; return what it prints."""
    (photographs(tmp_path / "all", train=20, val=0) / "train").rename(tmp_path / "photos")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "coterie"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m coterie "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}

    def type_line(line: str) -> str:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(
            line, shell=True, cwd=tmp_path, env=environment, start_new_session=True, **pipes
        )
        try:
            busy = os.getloadavg()[0] / (os.cpu_count() or 1)
            out, err = process.communicate(timeout=SECONDS * max(1.0, busy))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the runs that it started, too
            _, err = process.communicate()
            pytest.fail(f"not done after {SECONDS} seconds: {line}\n{err}")
        assert process.returncode == 0 and "Traceback" not in err, f"{line}\n{err}"
        return str(out)

    return type_line


@pytest.mark.slow  # about a minute; test_docs_blocks.py runs the page's commands every day
def test_from_photographs_to_a_prediction(shell: Shell, tmp_path: Path) -> None:
    verdict = shell(COMPARE)
    assert max(len(line.rstrip()) for line in verdict.splitlines()) <= 80
    assert verdict.startswith("resnet8 on photos: error on the test images")
    prose = " ".join(verdict.split())
    assert "Nothing can be said yet: over 2 seeds no method is clearly better than Baseline" in prose

    shown = Page((tmp_path / "cmp" / "report.html").read_text())
    assert "Baseline, PCL: resnet8 on photos" in shown.text and "on folder" not in shown.text
    assert "95 % interval over 2 seeds: too few to tell it from chance" in shown.text
    assert [row[0][0] for row in shown.tables["Methods"][1:]] == ["Baseline", "PCL"]
    mean = {name: value for (name, _), (_, value) in
            zip(shown.column("Results", "method"), shown.column("Results", "error %"), strict=True)}  # fmt: skip
    for method in ("Baseline", "PCL"):
        ends = [records(run)[-1] for run in sorted((tmp_path / "cmp").glob(f"{method}-*"))]
        errors = [end["predictors"][end["deployed"]]["error"] for end in ends]
        assert len(errors) == 2 and mean[method] == pytest.approx(sum(errors) / 2)
        assert re.search(rf"│ {method} +│ +{sum(errors) / 2:.2f} ± ", verdict)  # the terminal has the same number

    (export,) = re.findall(r"(?m)^ +(coterie export .*)$", verdict)
    assert "labels agree on 100.00 %" in shell(export)
    session = onnxruntime.InferenceSession(tmp_path / "student.onnx")
    assert session.get_inputs()[0].shape[1:] == [3, 32, 32] and session.get_outputs()[0].shape[1:] == [2]
    photo = next((tmp_path / "photos" / CLASSES[0]).glob("*.jpg")).relative_to(tmp_path)
    label = re.fullmatch(rf"{photo}  (\w+) ([\d.]+) %.*\n", shell(f"coterie predict student.onnx {photo}"))
    assert label is not None and label[1] in CLASSES and float(label[2]) >= 50

    run = shlex.split(export)[2]
    last = records(tmp_path / run)[-1]
    evaluated = shell(f"coterie evaluate {run}")
    assert f"{last['deployed']} (deployed)" in evaluated
    assert f"{last['predictors'][last['deployed']]['error']:.2f}" in evaluated
    assert shell("coterie report cmp -o again.html").startswith("again.html: ")
    again = Page((tmp_path / "again.html").read_text())
    assert again.column("Results", "error %") == shown.column("Results", "error %")
