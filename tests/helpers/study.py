"""A small study, and its runs as directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.cli.main import main
from coterie.paper import study
from coterie.paper.cells import ResultCell
from coterie.paper.study import PRIMARY, Study
from tests.helpers.experiment import TOY, write_run

MIXED = tuple(row.name for row in study.CIFAR_ROWS if row.mixed)
ERRORS = {  # of eight seeds
    "alone": [40.0, 41.0, 40.5, 39.5, 40.2, 41.3, 40.8, 40.1],
    "alone, 4x epochs": [39.9, 40.2, 40.9, 39.1, 39.8, 41.0, 41.0, 39.9],
    "CutMix": [37.0, 38.0, 37.5, 37.2, 37.1, 38.4, 37.9, 37.0],
    "CutMix, 4x epochs": [36.5, 36.6, 37.0, 36.8, 36.2, 37.9, 37.1, 36.3],
    "KDCL": [37.9, 37.2, 37.6, 37.0, 36.9, 38.0, 37.7, 37.3],
    "PCL": [38.0, 38.6, 38.1, 37.9, 38.3, 38.9, 38.8, 38.4],
    "KDCL + CutMix": [36.0, 36.9, 36.1, 36.0, 36.4, 37.0, 36.8, 36.1],
    "PCL + CutMix": [36.9, 37.4, 37.6, 36.5, 37.2, 37.6, 37.3, 36.8],
}


def toy_study(mixing: float | None = 0.5) -> Study:
    options = {**TOY, "evaluate_every": 1}
    return study.regime(
        "toy",
        "digits, ResNet8",
        options,
        study.CIFAR_ROWS,
        seeds=8,
        primary=PRIMARY,
        mixing=dict.fromkeys(MIXED, mixing),
        split=study.SPLIT_ROWS,
    )


def write_study_run(out: Path, cell: ResultCell, seed: int, error: float) -> None:
    """A finished run whose deployed network has this error; its NLL is a tenth of it, its images are 10,000."""
    job = next(job for job in cell.jobs if job.seed == seed)
    every = int(job.options["evaluate_every"])
    path = write_run(out, job, {"peer1": error, "mean1": error}, train=job.step_cost() * every)
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for scores in record["predictors"].values():
            scores["nll"] = scores["error"] / 10
    kept = [json.dumps(records[epoch]) + "\n" for epoch in job.evaluated]
    (path / "metrics.jsonl").write_text("".join(kept))
    (path / "data.json").write_text(json.dumps({"images": {"test": 10_000}}))


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([str(argument) for argument in ("reproduce", *arguments, "--protocol", "toy", "--show")])
    return capsys.readouterr().out


# The plan
