"""Finished runs by seed: their errors, and what their training took beside that of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def core_hours(runs: Iterable[Result]) -> float:
    """Return the hours of training of runs of one thread each, had none shared its core; each run counts once."""
    seconds = {run.path: fastest_seconds(run) or 0.0 for run in runs}
    return sum(seconds.values()) / 3600


def _seconds(runs: Sequence[Result]) -> float | None:
    """Return the time of all runs of a recipe, had all gone at the pace of the fastest of them.

    Their steps cost the same, but some runs may have shared a core from beginning to end.
    """
    times = [time for run in runs if (time := fastest_seconds(run)) is not None]
    if len(times) < len(runs):
        return None
    epochs = [run.trained for run in runs]
    return min((time / count for time, count in zip(times, epochs, strict=True)), default=0.0) * sum(epochs)
