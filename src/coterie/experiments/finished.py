"""Finished runs by seed: their errors, and what their training took beside that of others."""

from __future__ import annotations

from collections.abc import Sequence

from ..runs.reader import Record, Result, fastest_seconds, score

FinishedRuns = dict[int, Result]
"""The finished runs of one recipe by seed."""


def error_of(record: Record, predictor: str | None) -> float | None:
    """Return the error of a predictor, or of the deployed one."""
    return score(record, predictor or record["deployed"], "error")


def errors_of(runs: FinishedRuns, predictor: str | None = None) -> dict[int, float]:
    """Return the error of the weights to deploy by seed."""
    errors = {seed: error_of(run.deployed_record, predictor) for seed, run in runs.items()}
    return {seed: error for seed, error in errors.items() if error is not None}


def cost_ratio(ours: FinishedRuns, theirs: FinishedRuns, teacher: Result | None) -> float | None:
    """Return time spent training over the common seeds, as a ratio; each pupil's includes its teacher's."""
    seeds = ours.keys() & theirs.keys()
    if not seeds or (teacher is not None and not teacher.finished):
        return None
    own, reference = (_seconds([runs[seed] for seed in seeds]) for runs in (ours, theirs))
    taught = _seconds([teacher] * len(seeds) if teacher is not None else [])
    return (own + taught) / reference if own is not None and taught is not None and reference else None


def _seconds(runs: Sequence[Result]) -> float | None:
    times = [time for run in runs if (time := fastest_seconds(run)) is not None]
    return sum(times) if len(times) == len(runs) else None
