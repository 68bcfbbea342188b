"""Runs become the lines of a table: errors over the seeds, what they are compared with, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ..experiments.finished import FinishedRuns, error_of, errors_of
from ..experiments.job import Job
from ..experiments.run_state import RunState, run_state
from ..metrics.seeds import Difference, Spread
from ..runs.reader import Record, Result, score
from .cells import ResultCell
from .readings import RecordValue
from .study import Comparison

LEVEL = 0.05
"""A comparison whose Holm-adjusted p value is below this is a win for the row with the lower mean error."""


class Origin(NamedTuple):
    """When, from which commit and on what a run, or a part of one, was trained."""

    date: str
    commit: str
    machine: str


@dataclass(frozen=True, kw_only=True)
class ComparisonResult(Comparison):
    """A primary comparison with what its runs have come to so far."""

    family_size: int
    """How many comparisons p is adjusted for."""
    seeds: int
    """How many are planned."""
    difference: Difference | None
    won: int
    """Seeds with which the row errs less than its reference."""
    p: float | None
    adjusted: float | None
    """p by Holm's method over its family."""
    by_seed: tuple[float, ...] = ()
    """The difference of each seed."""

    @property
    def complete(self) -> bool:
        return self.difference is not None and self.difference.count == self.seeds

    @property
    def winner(self) -> str:
        """The row that wins, or nothing."""
        if not self.complete or self.difference is None or self.adjusted is None or self.adjusted >= LEVEL:
            return ""
        return self.row if self.difference.mean < 0 else self.reference

    @property
    def verdict(self) -> str:
        if not self.complete:
            return f"open: {self.difference.count if self.difference else 0} of {self.seeds} seeds"
        return f"{self.winner} wins" if self.winner else "no win"


@dataclass(frozen=True)
class ResultLine:
    """A cell with what its runs have come to so far; only finished runs count."""

    cell: ResultCell
    states: Sequence[tuple[Job, RunState]]
    reference: str = ""
    """The row that it is compared with."""
    difference: Difference | None = None
    won: int = 0
    """Seeds with which the row errs less than its reference."""
    cost: float | None = None
    """Training time, at its fastest, a teacher's included, in that of the first row's runs of the same seeds."""
    further: Mapping[str, Spread] = field(default_factory=dict)
    """What a figure, or Table 3, reads besides."""
    comparison: ComparisonResult | None = None
    """The primary comparison of this row with its reference, if it is one."""
    chosen: bool = False
    """Whether screening takes its probability of CutMix."""

    @property
    def row(self) -> str:
        return self.cell.row

    @property
    def setting(self) -> str:
        return self.cell.setting.title

    @property
    def seeds(self) -> int:
        """How many are wanted."""
        return len(self.cell.jobs)

    @cached_property
    def finished(self) -> FinishedRuns:
        return {job.seed: state.result for job, state in self.states if state.kind == "done"}

    @property
    def errors(self) -> dict[int, float]:
        """By seed."""
        return errors_of(self.finished, self.cell.predictor)

    @property
    def error(self) -> Spread:
        return Spread.of(self.errors.values())

    @property
    def raw(self) -> Spread:
        """Of the trained weights of peer 1, or of the ensemble in a row of ensembles."""
        return self._error_of_weights("peer")

    @property
    def averaged(self) -> Spread:
        """Of their averages."""
        return self._error_of_weights("mean")

    def _error_of_weights(self, kind: str) -> Spread:
        records = [run.last for run in self.finished.values()]
        return Spread.of(error_of(record, self._predictor(record, kind)) for record in records)

    def _predictor(self, record: Record, kind: str) -> str:
        """Return the predictor with raw weights (peer) or averaged ones (mean)."""
        if self.cell.predictor != "ensemble":
            return f"{kind}1"
        if record["deployed"].startswith(kind):
            return "ensemble"
        return "raw_ensemble" if kind == "peer" else "mean_ensemble"

    @property
    def nll(self) -> Spread:
        records = [run.last for run in self.finished.values()]
        return Spread.of(score(record, self.cell.predictor or record["deployed"], "nll") for record in records)

    @property
    def test_images(self) -> int | None:
        for run in self.finished.values():
            if isinstance(images := run.data.get("images"), dict) and isinstance(images.get("test"), int):
                return int(images["test"])
        return None

    @property
    def origins(self) -> list[Origin]:
        return sorted({origin for run in self.finished.values() for origin in _origins(run)})

    @property
    def notes(self) -> list[str]:
        """What is missing, partial, failed or odd."""
        if self.cell.unscreened:
            return ["not screened yet"]
        notes = [note for job, state in self.states if (note := _note(job, state))]
        missing = [str(job.seed) for job, state in self.states if state.kind == "missing" and not state.note]
        if missing:
            notes.append(f"seed{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing")
        return notes


def _note(job: Job, state: RunState) -> str:
    seed = f"seed {job.seed}"
    if state.note and state.kind in ("missing", "partial"):
        return f"{seed} failed after {state.epochs} of {job.epochs} epochs: {state.note}"
    if state.kind == "partial":
        return f"{seed} partial: {state.epochs} of {job.epochs} epochs"
    if state.kind == "damaged":
        return f"{seed} damaged: {state.note}"
    diverged = [problem for problem in state.result.problems if "diverged" in problem]
    return f"{seed}: {diverged[0]}" if diverged else ""


def _origins(run: Result) -> list[Origin]:
    origins = []
    for part in filter(None, run.environments):
        digits, dirty, _ = str(part.get("commit") or "?").partition("-dirty")
        processor, threads, torch = (part.get(name, "?") for name in ("processor", "threads", "torch"))
        machine = f"{processor}, threads {threads}, torch {torch}"
        origins.append(Origin(str(part.get("date", "?"))[:10], digits[:7] + dirty, machine))
    return origins


class ResultRuns:
    """The runs of cells in one directory, each read once.

    Args:
        out: the directory.
        further_seeds: whether what there is of further seeds than the cells' own counts too.
    """

    def __init__(self, out: Path, further_seeds: bool) -> None:
        self.out, self.further_seeds = out, further_seeds
        self._states: dict[str, RunState] = {}

    def state(self, job: Job) -> RunState:
        if job.name not in self._states:
            self._states[job.name] = run_state(self.out, job)
        return self._states[job.name]

    def line(self, cell: ResultCell) -> ResultLine:
        """Return a cell with its runs, not compared with another yet."""
        return ResultLine(cell, [(job, self.state(job)) for job in self._jobs(cell)])

    def _jobs(self, cell: ResultCell) -> list[Job]:
        if not self.further_seeds:
            return list(cell.jobs)
        stem = replace(cell.jobs[0], seed=0).name.removesuffix("0")
        ends = [path.name.removeprefix(stem) for path in self.out.glob(f"{stem}*")]
        further = {int(end) for end in ends if end.isdecimal()} - {job.seed for job in cell.jobs}
        return [*cell.jobs, *(replace(cell.jobs[0], seed=seed) for seed in sorted(further))]

    def common_seeds(
        self, cells: Sequence[ResultCell], kinds: Collection[str] = ("partial", "done")
    ) -> list[ResultCell]:
        """Return these cells with the runs of the seeds that all have.

        A cell without any run keeps none; where the others have no seed in common, each keeps its own.
        """
        jobs = [[job for job in self._jobs(cell) if self.state(job).kind in kinds] for cell in cells]
        seeds = [{job.seed for job in own} for own in jobs if own]
        common = set.intersection(*seeds) if seeds else set()
        return [
            replace(cell, jobs=tuple(job for job in own if not common or job.seed in common))
            for cell, own in zip(cells, jobs, strict=True)
        ]

    def curve(self, cell: ResultCell, value: RecordValue) -> dict[int, Spread]:
        """Return a number after each epoch, over the seeds that got there, unfinished ones too."""
        by_epoch: dict[int, list[float | None]] = {}
        for job in cell.jobs:
            for record in self.state(job).result.records:
                by_epoch.setdefault(record["epoch"] + 1, []).append(value(record))
        return {epoch: spread for epoch, values in by_epoch.items() if (spread := Spread.of(values)).count}
