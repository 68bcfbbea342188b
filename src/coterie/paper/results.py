"""Runs become the lines of a table: ours over the seeds, the paper's, difference, cost, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..experiments.job import Job
from ..experiments.state import State, state
from ..metrics.seeds import Difference, Spread, paired
from ..runs.reader import Record, Result, fastest_seconds, score
from .numbers import PARAMETERS, Number
from .sizes import ensemble_parameters
from .tables import Cell, beside


class Origin(NamedTuple):
    """When, from which commit and on what a run, or a part of one, was trained."""

    date: str
    commit: str
    machine: str


@dataclass(frozen=True)
class Line:
    """A cell with what its runs have come to so far; only finished runs count."""

    setting: str
    row: str
    seeds: int
    """How many are wanted."""
    error: Spread
    raw: Spread
    """Of the trained weights of peer 1, or of the ensemble in a row of ensembles."""
    averaged: Spread
    """Of their averages."""
    paper: Number | None
    beside: str
    """The paper's setting."""
    reference: str
    """The row that it is compared with."""
    difference: Difference | None
    cost: float | None
    """Training time, at its fastest, a teacher's included, in that of the first row's runs of the same seeds."""
    further: Mapping[str, Spread] = field(default_factory=dict)
    """What a figure reads besides."""
    notes: Sequence[str] = ()
    """What is missing, partial, failed or odd."""
    origins: Sequence[Origin] = ()

    def plain(self) -> dict[str, Any]:
        """The same as plain values, for JSON and for pages."""
        found = asdict(self)
        for name in ("error", "raw", "averaged"):
            found[name] = plain_spread(getattr(self, name))
        found["further"] = {name: plain_spread(spread) for name, spread in self.further.items()}
        found["paper"] = None if self.paper is None else self.paper._asdict()
        found["origins"] = [origin._asdict() for origin in self.origins]
        return found


def plain_spread(spread: Spread) -> dict[str, Any]:
    mean = spread.mean if spread.count else None
    return {"mean": mean, "std": spread.std, "count": spread.count, "values": list(spread.values)}


Finished = dict[int, Result]
"""The finished runs of a cell by seed."""


def jobs(cell: Cell, out: Path) -> list[Job]:
    """Those asked for, and of further seeds those that are there."""
    asked = {job.seed for job in cell.jobs}
    first = replace(cell.jobs[0], seed=0).name.removesuffix("0")
    ends = [path.name.removeprefix(first) for path in out.glob(f"{first}*")]
    there = {int(end) for end in ends if end.isdecimal()}
    return [*cell.jobs, *(replace(cell.jobs[0], seed=seed) for seed in sorted(there - asked))]


def lines(
    experiment: str, cells: Sequence[Cell], everything: Sequence[Cell], out: Path, against: str = ""
) -> list[Line]:
    """Of these cells, beside the row `against`, or the first one, of their setting as found in `everything`."""
    found: dict[str, State] = {}

    def look(job: Job) -> State:
        if job.name not in found:
            found[job.name] = state(out, job)
        return found[job.name]

    def states(cell: Cell) -> list[tuple[Job, State]]:
        return [(job, look(job)) for job in jobs(cell, out)]

    def finished(cell: Cell) -> Finished:
        return {job.seed: now.result for job, now in states(cell) if now.kind == "done"}

    result = []
    for cell in cells:
        rows = [other for other in everything if other.setting == cell.setting]
        reference = next((row for row in rows if row.row == against), rows[0])
        ours, theirs = finished(cell), finished(reference)
        same = cell.row == reference.row
        result.append(
            Line(
                cell.setting.title,
                cell.row,
                len(cell.jobs),
                Spread.of(error_of(run.last, cell.predictor) for run in ours.values()),
                Spread.of(error_of(run.last, _weights(run.last, cell, "peer")) for run in ours.values()),
                Spread.of(error_of(run.last, _weights(run.last, cell, "mean")) for run in ours.values()),
                cell.paper,
                beside(experiment, cell.setting),
                reference.row,
                None if same else paired(errors_of(ours, cell.predictor), errors_of(theirs, reference.predictor)),
                cost_ratio(
                    ours, finished(rows[0]), look(teacher).result if (teacher := cell.jobs[0].needs) else None
                ),
                _parameters(experiment, cell, ours)
                | {name: Spread.of(map(read, ours.values())) for name, read in _further(experiment, cell).items()},
                notes_of(states(cell)),
                sorted({origin for run in ours.values() for origin in origins_of(run)}),
            )
        )
    return result


def error_of(record: Record, predictor: str | None) -> float | None:
    return score(record, predictor or record["deployed"], "error")


def accuracy_of(record: Record, predictor: str | None) -> float | None:
    error = error_of(record, predictor)
    return None if error is None else 100 - error


def errors_of(runs: Finished, predictor: str | None) -> dict[int, float]:
    found = {seed: error_of(run.last, predictor) for seed, run in runs.items()}
    return {seed: error for seed, error in found.items() if error is not None}


def _weights(record: Record, cell: Cell, kind: str) -> str:
    """The predictor with raw weights (peer) or averaged ones (mean)."""
    if cell.predictor != "ensemble":
        return f"{kind}1"
    if record["deployed"].startswith(kind):
        return "ensemble"
    return "raw_ensemble" if kind == "peer" else "mean_ensemble"


def cost_ratio(ours: Finished, theirs: Finished, teacher: Result | None) -> float | None:
    """Time spent training, over the common seeds; each pupil's includes its teacher's."""
    seeds = ours.keys() & theirs.keys()
    if not seeds or (teacher is not None and not teacher.finished):
        return None
    mine, other = (_seconds([runs[seed] for seed in seeds]) for runs in (ours, theirs))
    taught = _seconds([teacher] * len(seeds) if teacher is not None else [])
    return (mine + taught) / other if mine is not None and taught is not None and other else None


def _seconds(runs: Sequence[Result]) -> float | None:
    times = [fastest_seconds(run) for run in runs]
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None


def origins_of(run: Result) -> list[Origin]:
    return [
        Origin(
            str(found.get("date", "?"))[:10],
            _short(str(found.get("commit") or "?")),
            f"{found.get('processor', '?')}, threads {found.get('threads', '?')}, torch {found.get('torch', '?')}",
        )
        for found in run.environments
        if found
    ]


def _short(commit: str) -> str:
    digits, changed, _ = commit.partition("-dirty")
    return digits[:7] + changed


def notes_of(states: Sequence[tuple[Job, State]]) -> list[str]:
    missing = [str(job.seed) for job, now in states if now.kind == "missing" and not now.note]
    seeds = f"seed{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    rest = [note for job, now in states if (note := _note(job, now))]
    return [*rest, f"{seeds} missing"] if missing else rest


def _note(job: Job, now: State) -> str:
    seed = f"seed {job.seed}"
    if now.note and now.kind in ("missing", "partial"):
        return f"{seed} failed after {now.epochs} of {job.epochs} epochs: {now.note}"
    if now.kind == "partial":
        return f"{seed} partial: {now.epochs} of {job.epochs} epochs"
    if now.kind == "damaged":
        return f"{seed} damaged: {now.note}"
    odd = [problem for problem in now.result.problems if "diverged" in problem]
    return f"{seed}: {odd[0]}" if odd else ""


Reader = Callable[[Result], "float | None"]


def _parameters(experiment: str, cell: Cell, ours: Finished) -> dict[str, Spread]:
    """Table 3's, ours and the paper's: numbers that no seed changes."""
    if experiment != "table3":
        return {}
    counted = [ensemble_parameters(cell.jobs[0], run.data) for run in list(ours.values())[:1]]
    told = PARAMETERS[cell.row].get(cell.setting.beside[0])
    return {
        "parameters (M)": Spread.of(counted),
        f"paper's (M, {beside(experiment, cell.setting)})": Spread.of([told]),
    }


def _further(experiment: str, cell: Cell) -> dict[str, Reader]:
    """What the text says about the curves of Fig. 3 and 4 as numbers."""
    if experiment == "fig3":
        return {  # of all rows in both kinds of weights: averaging alone makes a curve fall early and run smoothly
            "raw, at 1/6": lambda run: error_of(_at(run, 1 / 6), "peer1"),
            "raw, at 1/2": lambda run: error_of(_at(run, 1 / 2), "peer1"),
            "raw, fluctuation": lambda run: _fluctuation(run, "peer1"),
            "averaged, at 1/6": lambda run: error_of(_at(run, 1 / 6), "mean1"),
            "averaged, at 1/2": lambda run: error_of(_at(run, 1 / 2), "mean1"),
            "averaged, fluctuation": lambda run: _fluctuation(run, "mean1"),
        }
    if experiment == "fig4":
        return {
            "accuracy at 1/2": lambda run: accuracy_of(_at(run, 1 / 2), cell.predictor),
            "accuracy": lambda run: accuracy_of(run.last, cell.predictor),
            "branch variance, raw, to 1/2": lambda run: _variance(run, "peer", first=True),
            "branch variance, raw, from 1/2": lambda run: _variance(run, "peer", first=False),
            "branch variance, averaged, to 1/2": lambda run: _variance(run, "mean", first=True),
            "branch variance, averaged, from 1/2": lambda run: _variance(run, "mean", first=False),
        }
    return {}


def digits(further: str) -> int:
    """Of what a line has besides: points want two, branch variances and our small networks' millions four."""
    return 4 if further.startswith(("branch variance", "parameters")) else 2


def _at(run: Result, fraction: float) -> Record:
    """The last one of the first fraction of the training."""
    return run.records[max(0, round(fraction * len(run.records)) - 1)]


def _fluctuation(run: Result, predictor: str) -> float | None:
    """By how many points the error jumps from one evaluation to the next, on average, before the first drop.

    From 1/6 of the training on: before that every curve falls.
    """
    count = len(run.records)
    errors = [error_of(record, predictor) for record in run.records[round(count / 6) : round(count / 2)]]
    jumps = [abs(b - a) for a, b in pairwise(errors) if a is not None and b is not None]
    return sum(jumps) / len(jumps) if jumps else None


Kind = Literal["peer", "mean"]


def branch_variance(kind: Kind) -> Callable[[Record], float | None]:
    """How far apart the trained branches are, or their averages (Fig. 4, where the paper does not say which)."""
    return lambda record: record["diversity"].get(kind)


def _variance(run: Result, kind: Kind, first: bool) -> float | None:
    half = len(run.records) // 2
    values = map(branch_variance(kind), run.records[:half] if first else run.records[half:])
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def common_seeds(cells: Sequence[Cell], out: Path, kinds: Collection[str] = ("partial", "done")) -> list[Cell]:
    """These cells with the runs of the seeds that all have, so that like is compared with like.

    A cell without any run keeps none; where the others have no seed in common, each keeps its own.
    """
    there = [[job for job in jobs(cell, out) if state(out, job).kind in kinds] for cell in cells]
    seeds = [{job.seed for job in found} for found in there if found]
    common = set.intersection(*seeds) if seeds else set()
    return [
        replace(cell, jobs=tuple(job for job in found if not common or job.seed in common))
        for cell, found in zip(cells, there, strict=True)
    ]


def curve(cell: Cell, out: Path, value: Callable[[Record], float | None]) -> dict[int, Spread]:
    """A number after each epoch, over the seeds that got there, unfinished ones too."""
    by_epoch: dict[int, list[float | None]] = {}
    for job in cell.jobs:
        for record in state(out, job).result.records:
            by_epoch.setdefault(record["epoch"] + 1, []).append(value(record))
    return {epoch: spread for epoch, values in by_epoch.items() if (spread := Spread.of(values)).count}
