"""Runs become the numbers of the study: a line for each row, the primary comparisons, the choice of screening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..experiments.job import Job
from ..experiments.state import State, state
from ..metrics.seeds import Difference, Spread, holm_adjusted, paired, paired_differences, seeds_won, sign_flip_p
from ..runs.reader import score
from .results import Finished, Origin, cost_ratio, errors_of, notes_of, origins_of, plain_spread
from .study import Comparison, Study, probability_of, unscreened
from .tables import Cell

LEVEL = 0.05
"""A comparison whose Holm-adjusted p value is below this is a win for the row with the lower mean error."""


@dataclass(frozen=True)
class ComparisonResult:
    """A primary comparison with what its runs have come to so far."""

    comparison: Comparison
    seeds: int
    """How many are planned."""
    difference: Difference | None
    won: int
    """Seeds with which the row errs less than its reference."""
    p: float | None
    adjusted: float | None
    """p by Holm's method over all primary comparisons of the regime."""

    @property
    def complete(self) -> bool:
        return self.difference is not None and self.difference.count == self.seeds

    @property
    def winner(self) -> str:
        """The row that wins, or nothing."""
        if not self.complete or self.difference is None or self.adjusted is None or self.adjusted >= LEVEL:
            return ""
        return self.comparison.row if self.difference.mean < 0 else self.comparison.reference

    @property
    def verdict(self) -> str:
        if not self.complete:
            return f"open: {self.difference.count if self.difference else 0} of {self.seeds} seeds"
        return f"{self.winner} wins" if self.winner else "no win"

    def plain(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        values = asdict(self)
        return {"name": self.comparison.name, **values.pop("comparison"), **values, "verdict": self.verdict}


@dataclass(frozen=True)
class StudyLine:
    """A row with what its runs have come to so far; only finished runs of planned seeds count."""

    row: str
    isolates: str
    seeds: int
    error: Spread
    reference: str
    difference: Difference | None
    won: int
    comparison: ComparisonResult | None
    """The primary comparison of this row with its reference, if it is one."""
    nll: Spread
    cost: float | None
    """Training time in that of the first row's runs of the same seeds."""
    notes: Sequence[str]
    origins: Sequence[Origin]
    test_images: int | None

    def plain(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            **asdict(self),
            "error": plain_spread(self.error),
            "nll": plain_spread(self.nll),
            "comparison": None if self.comparison is None else self.comparison.plain(),
            "origins": [origin._asdict() for origin in self.origins],
        }


@dataclass(frozen=True)
class ScreeningLine:
    """A row with one probability of CutMix, judged on held-out training images."""

    row: str
    probability: float
    seeds: int
    error: Spread
    nll: Spread
    chosen: bool
    notes: Sequence[str]
    origins: Sequence[Origin]

    def plain(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            **asdict(self),
            "error": plain_spread(self.error),
            "nll": plain_spread(self.nll),
            "origins": [origin._asdict() for origin in self.origins],
        }


class StudyRuns:
    """The runs of a study's cells in one directory, each read once."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._states: dict[str, State] = {}

    def states(self, cell: Cell) -> list[tuple[Job, State]]:
        return [(job, self._state(job)) for job in cell.jobs]

    def _state(self, job: Job) -> State:
        if job.name not in self._states:
            self._states[job.name] = state(self.out, job)
        return self._states[job.name]

    def finished(self, cell: Cell) -> Finished:
        return {job.seed: now.result for job, now in self.states(cell) if now.kind == "done"}

    def errors(self, cell: Cell) -> dict[int, float]:
        return errors_of(self.finished(cell), cell.predictor)

    def nll(self, cell: Cell) -> Spread:
        records = [run.last for run in self.finished(cell).values()]
        return Spread.of(score(record, cell.predictor or record["deployed"], "nll") for record in records)

    def origins(self, cell: Cell) -> list[Origin]:
        return sorted({origin for run in self.finished(cell).values() for origin in origins_of(run)})

    def test_images(self, cell: Cell) -> int | None:
        for run in self.finished(cell).values():
            if isinstance(images := run.data.get("images"), dict) and isinstance(images.get("test"), int):
                return int(images["test"])
        return None


def compare_primary(protocol: Study, cells: Sequence[Cell], runs: StudyRuns) -> list[ComparisonResult]:
    """All primary comparisons; Holm's family is all of them, whatever there is of each."""
    errors = {cell.row: runs.errors(cell) for cell in cells}
    differences = {
        pair.name: paired_differences(errors[pair.row], errors[pair.reference]) for pair in protocol.primary
    }
    p_values = {name: p for name, each in differences.items() if (p := sign_flip_p(each)) is not None}
    adjusted = holm_adjusted(p_values, len(protocol.primary))
    return [
        ComparisonResult(
            pair,
            protocol.seeds["study"],
            paired(errors[pair.row], errors[pair.reference]),
            seeds_won(differences[pair.name]),
            p_values.get(pair.name),
            adjusted.get(pair.name),
        )
        for pair in protocol.primary
    ]


def study_lines(
    experiment: str,
    protocol: Study,
    cells: Sequence[Cell],
    everything: Sequence[Cell],
    runs: StudyRuns,
    against: str = "",
) -> list[StudyLine]:
    """A line for each of these cells, compared with the row `against`, or with its own reference."""
    by_row = {cell.row: cell for cell in everything}
    rows = {row.name: row for row in protocol.rows[experiment]}
    primary: dict[tuple[str, str], ComparisonResult] = {}
    if experiment == "study":
        results = compare_primary(protocol, everything, runs)
        primary = {(result.comparison.row, result.comparison.reference): result for result in results}
    first = runs.finished(everything[0])
    lines = []
    for cell in cells:
        reference = against or rows[cell.row].reference
        if reference == cell.row:
            reference = ""
        errors = runs.errors(cell)
        theirs = runs.errors(by_row[reference]) if reference else {}
        lines.append(
            StudyLine(
                cell.row,
                rows[cell.row].isolates,
                len(cell.jobs),
                Spread.of(errors.values()),
                reference,
                paired(errors, theirs),
                seeds_won(paired_differences(errors, theirs)),
                primary.get((cell.row, reference)),
                runs.nll(cell),
                cost_ratio(runs.finished(cell), first, None),
                _notes(cell, runs),
                runs.origins(cell),
                runs.test_images(cell),
            )
        )
    return lines


def _notes(cell: Cell, runs: StudyRuns) -> list[str]:
    if unscreened([cell]):
        return ["not screened yet"]
    return notes_of(runs.states(cell))


def screening_lines(protocol: Study, cells: Sequence[Cell], runs: StudyRuns) -> list[ScreeningLine]:
    """A line for each row and probability; one is chosen when all planned runs of the row are finished."""
    errors = [Spread.of(runs.errors(cell).values()) for cell in cells]
    chosen = _choices(cells, errors, protocol.seeds["screening"])
    return [
        ScreeningLine(
            cell.row,
            probability_of(cell) or 0.0,
            len(cell.jobs),
            error,
            runs.nll(cell),
            chosen.get(cell.row) == probability_of(cell),
            notes_of(runs.states(cell)),
            runs.origins(cell),
        )
        for cell, error in zip(cells, errors, strict=True)
    ]


def _choices(cells: Sequence[Cell], errors: Sequence[Spread], seeds: int) -> dict[str, float | None]:
    """For each complete row the probability with the lowest mean error; of equal ones the lower probability."""
    tried: dict[str, list[tuple[int, float, float | None]]] = {}
    for cell, error in zip(cells, errors, strict=True):
        tried.setdefault(cell.row, []).append((error.count, round(error.mean, 9), probability_of(cell)))
    return {
        row: min((mean, probability) for _, mean, probability in each)[1]
        for row, each in tried.items()
        if all(count == seeds for count, _, _ in each)
    }
