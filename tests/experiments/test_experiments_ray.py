"""Runs on a real local Ray: workers are lost, and their runs go on; two commands that start from one line."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from coterie.experiments.job import Job
from coterie.experiments.run_state import run_state
from tests.experiments.test_experiments_runner import ONLY, jobs, starts, until
from tests.helpers.common import coterie, linux_only
from tests.helpers.experiment import finish, start

LONG = {"epochs": 60}


def trainer(job: Job) -> int | None:
    """The process that trains a job."""
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if entry.name.isdigit() and b"train" in command and job.name.encode() in command:
            return int(entry.name)
    return None


def parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def worker_of(process: int) -> int:
    """The Ray worker that has started a training."""
    worker = parent(process)
    assert b"ray" in Path(f"/proc/{worker}/cmdline").read_bytes()
    return worker


@linux_only
@pytest.mark.slow
def test_a_lost_workers_run_restarts_from_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    out = tmp_path / "out"
    lost, other = jobs(2, **LONG)
    driver = start("fig3", "--only", ONLY, "--out", out, "--seeds", 2, "--launcher", "ray", **LONG)
    try:
        until(lambda: all((out / job.name / "checkpoint.pt").is_file() for job in (lost, other)), 300)
        process, second = trainer(lost), trainer(other)
        assert process is not None and second is not None  # both at once: two workers
        os.kill(worker_of(process), signal.SIGKILL)  # as with a node: the worker and what it started
        os.kill(process, signal.SIGKILL)
        os.kill(worker_of(second), signal.SIGKILL)  # the worker alone: the next one waits for its training
        until(lambda: trainer(lost) is None)
        before = run_state(out, lost)
        assert before.kind == "partial" and 0 < before.epochs < LONG["epochs"]
        code, text, error = finish(driver)
    finally:
        driver.kill()
    assert code == 0 and "2/2" in text, error
    after = run_state(out, lost)
    assert after.kind == "done" and starts(out, lost) == 2
    assert run_state(out, other).kind == "done"
    assert after.result.records[: before.epochs - 1] == before.result.records[: before.epochs - 1]  # resumed


@linux_only
@pytest.mark.slow
def test_a_comparison_runs_on_ray_by_one_command(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    options = ["--model", "resnet8", "--data", "digits", "--data.limit", 5, "--batch", 25, "--epochs", 1]
    result = coterie(
        "compare",
        *options,
        "--methods",
        "Baseline,DML",
        "--seeds",
        1,
        "--launcher",
        "ray",
        "--out",
        "cmp",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "cmp").glob("*/student.safetensors"))) == 2
    assert "Baseline" in result.stdout and "DML" in result.stdout
