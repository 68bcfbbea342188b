"""A toy experiment that the tests of the runner share: resnet8 on a few digits, two epochs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coterie.experiments.job import Job
from coterie.paper import protocols
from coterie.paper.protocols import Protocol, Setting
from coterie.paper.rows import ROWS_WITH_CONTROLS

TOY = {**protocols.CIFAR, "epochs": 2, "batch": 25, "data": "digits", "data.limit": 5, "model": "resnet8"}


def toy(**options: Any) -> Protocol:
    setting = Setting("digits, ResNet8", ("CIFAR-10", "ResNet32"), {**TOY, **options}, teacher="resnet14")
    return Protocol("toy", dict.fromkeys(protocols.EXPERIMENTS, (setting,)), ROWS_WITH_CONTROLS)


SCRIPT = """
import sys
from coterie.cli.main import main
from coterie.paper.protocols import PROTOCOLS
from tests.helpers.experiment import toy
PROTOCOLS["toy"] = toy(**eval(sys.argv[1]))
main(["reproduce", *sys.argv[2:]])
"""


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start `coterie reproduce` with the toy protocol in a process of its own."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, repr(options), *map(str, arguments), "--protocol", "toy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(paths)},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=600)
    return process.returncode, stdout, stderr


def records(job: Job, errors: dict[str, float], epochs: int | None = None, train: float = 1.0) -> str:
    """Return a metrics.jsonl of a job whose predictors have these errors in the last epoch and 90 before."""
    deployed = "mean1" if job.options["method"] in ("PCL", "OwnMean") else "peer1"
    lines = []
    for epoch in range(job.epochs if epochs is None else epochs):
        last = epoch + 1 == job.epochs
        predictors = {name: {"error": error if last else 90.0} for name, error in errors.items()}
        record = {"epoch": epoch, "deployed": deployed, "predictors": predictors, "time": {"train": train}}
        lines.append(json.dumps({**record, "diversity": {"peer": 0.5, "mean": 0.1}}) + "\n")
    return "".join(lines)


def config(job: Job) -> dict[str, Any]:
    """A config.yaml of a job, as `coterie train` writes it: a class with arguments is a mapping."""
    stored: dict[str, Any] = {"seed": job.seed}
    for option, value in sorted(job.options.items()):  # `method` comes before `method.weight`
        head, _, rest = option.partition(".")
        if not rest:
            stored[head] = value
            continue
        if not isinstance(stored.get(head), dict):
            stored[head] = {"class_path": f"some.module.{stored.get(head)}", "init_args": {}}
        stored[head]["init_args"][rest] = value
    return stored


def write_run(out: Path, job: Job, errors: dict[str, float], **rest: Any) -> Path:
    """Write a run directory as results are kept: its configuration and metrics, without weights."""
    path = out / job.name
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(json.dumps(config(job)))
    (path / "metrics.jsonl").write_text(records(job, errors, **rest))
    return path
