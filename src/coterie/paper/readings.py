"""Numbers read from a run: a predictor's error, what the figures' curves show, the size of an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from .. import models
from ..experiments.finished import error_of
from ..experiments.job import Job
from ..methods import available
from ..metrics.seeds import Spread
from ..peers.cost import parameters
from ..peers.cuts import default_cut
from ..peers.net import PeerNet
from ..runs.reader import Record, Result
from .cells import ResultCell
from .numbers import PARAMETERS

RecordValue = Callable[[Record], "float | None"]
"""A number of one record, None where it has none."""


def deployed_error(cell: ResultCell) -> RecordValue:
    return lambda record: error_of(record, cell.predictor)


def averaged_error(cell: ResultCell) -> RecordValue:
    return lambda record: error_of(record, "mean1")


def accuracy(cell: ResultCell) -> RecordValue:
    def value(record: Record) -> float | None:
        error = error_of(record, cell.predictor)
        return None if error is None else 100 - error

    return value


def branch_variance(kind: str) -> Callable[[ResultCell], RecordValue]:
    """Return how far apart the trained branches are (`peer`), or their averages (`mean`).

    Both for Fig. 4, where the paper does not say which.
    """
    return lambda cell: lambda record: record["diversity"].get(kind)


def further_readings(experiment: str, cell: ResultCell, runs: Sequence[Result]) -> dict[str, Spread]:
    """Return Table 3's parameters, and as numbers what the text says about the curves of Fig. 3 and 4."""
    if experiment == "table3":
        counted = [ensemble_parameters(cell.jobs[0], run.data) for run in runs[:1]]  # no seed changes them
        paper = PARAMETERS[cell.row].get(cell.setting.paper_setting[0])
        return {
            "parameters (M)": Spread.of(counted),
            f"paper's (M, {cell.paper_setting})": Spread.of([paper]),
        }
    readings: dict[str, list[float | None]] = {}
    if experiment == "fig3":  # both kinds of weights: averaging alone makes a curve fall early and run smoothly
        for name, predictor in (("raw", "peer1"), ("averaged", "mean1")):
            readings[f"{name}, at 1/6"] = [error_of(_at(run, 1 / 6), predictor) for run in runs]
            readings[f"{name}, at 1/2"] = [error_of(_at(run, 1 / 2), predictor) for run in runs]
            readings[f"{name}, fluctuation"] = [_fluctuation(run, predictor) for run in runs]
    elif experiment == "fig4":
        readings["accuracy at 1/2"] = [accuracy(cell)(_at(run, 1 / 2)) for run in runs]
        readings["accuracy"] = [accuracy(cell)(run.last) for run in runs]
        halves = [(run.records, len(run.records) // 2) for run in runs]
        for name, kind in (("raw", "peer"), ("averaged", "mean")):
            variance = f"branch variance, {name}"
            readings[f"{variance}, to 1/2"] = [_variance(records[:half], kind) for records, half in halves]
            readings[f"{variance}, from 1/2"] = [_variance(records[half:], kind) for records, half in halves]
    return {name: Spread.of(values) for name, values in readings.items()}


def reading_digits(name: str) -> int:
    """Return the digits of a further reading: branch variances and our small networks' millions want four."""
    return 4 if name.startswith(("branch variance", "parameters")) else 2


def _at(run: Result, fraction: float) -> Record:
    """Return the last record of the first fraction of the training."""
    return run.records[max(0, round(fraction * len(run.records)) - 1)]


def _fluctuation(run: Result, predictor: str) -> float | None:
    """Return by how many points the error jumps between evaluations, on average, before the first drop.

    From 1/6 of the training on: before that every curve falls.
    """
    count = len(run.records)
    errors = [error_of(record, predictor) for record in run.records[round(count / 6) : round(count / 2)]]
    jumps = [abs(b - a) for a, b in pairwise(errors) if a is not None and b is not None]
    return sum(jumps) / len(jumps) if jumps else None


def _variance(records: Sequence[Record], kind: str) -> float | None:
    values = [value for record in records if (value := record["diversity"].get(kind)) is not None]
    return sum(values) / len(values) if values else None


def ensemble_parameters(job: Job, data: Mapping[str, Any]) -> float | None:
    """Return the millions of all peers of a job with their head, for data as a run's data.json describes it."""
    if not data:
        return None
    method, model = str(job.options["method"]), str(job.options["model"])
    options = tuple(job.method_options.items())
    return _count_parameters(method, options, model, job.peers, len(data["classes"]), tuple(data["shape"]))


@cache  # seeds do not differ in it, and a page that is watched is made again and again
def _count_parameters(
    method: str,
    options: tuple[tuple[str, Any], ...],
    model: str,
    peers: int,
    classes: int,
    shape: tuple[int, int, int],
) -> float:
    channels, *size = shape
    make = models.factory(model, classes, channels, size=(size[0], size[1]), fresh=False)
    example = torch.zeros(2, *shape)
    net = PeerNet(make, peers, default_cut(make(), example), example)
    return parameters(available()[method](net, **dict(options)).predictors()["ensemble"]) / 1e6
