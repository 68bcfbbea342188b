"""The study's tables: its rows, its planned comparisons, its screening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ..experiments.finished import core_hours
from ..metrics.seeds import Difference, Spread
from ..report.table import NOTHING, Cell, Table, number, spread, text
from .cells import ResultCell
from .comparisons import compare_primary, screening_lines
from .result_tables import Column, ResultTables, column_table, plain
from .results import LEVEL, ComparisonResult, ResultLine, ResultRuns
from .study import HELD_OUT, Study

ROWS_EXPLAINED = (
    "Top-1 error of the last epoch in per cent, mean ± standard deviation over n seeds; NLL of the same network. "
    "Differences in error are paired over the seeds that both rows have, ± half their 95 % confidence interval "
    "(Student's t). Bold: a planned comparison that is won. Seeds won: with how many of them the row has the "
    "lower error. Cost: the computation of the training relative to alone, by what a step computes."
)
BRIEFLY_EXPLAINED = (
    "Top-1 error of the last epoch, mean ± standard deviation over n seeds, each with its own training images; "
    "differences are paired over the seeds, ± half their 95 % confidence interval. Bold: a planned comparison "
    f"that is won (exact paired sign-flip test, Holm p < {LEVEL:g}). "
    "Cost: the computation of the training relative to alone."
)
PRIMARY_EXPLAINED = (
    "p: exact paired sign-flip test over the seeds, two-sided. Holm p: adjusted by Holm's method over the "
    f"{{family}} comparisons of this family. A win: all planned seeds are there, Holm p < {LEVEL:g}."
)
SCREENING_EXPLAINED = (
    f"Top-1 error in per cent on {HELD_OUT:,} training images a class that no row trains with, mean ± standard "
    "deviation over n seeds, none of them the study's. The test images are not used. A row takes the probability "
    "with the lowest mean error."
)
STUDY_FIELDS = (
    *("row", "isolates", "seeds", "error", "reference", "difference", "won", "comparison", "nll", "cost"),
    *("notes", "origins", "test_images"),
)
SCREENING_FIELDS = ("row", "probability", "seeds", "error", "nll", "chosen", "notes", "origins")


def study_tables(
    experiment: str,
    protocol: Study,
    lines: Sequence[ResultLine],
    everything: Sequence[ResultCell],
    runs: ResultRuns,
    brief: bool = False,
) -> ResultTables:
    """Return the tables of the study or of its split; `brief`: that of the rows alone, with a short note."""
    results = compare_primary(protocol, everything, runs) if experiment == "study" else []
    by_pair = {(result.row, result.reference): result for result in results}
    lines = [
        replace(
            line,
            comparison=by_pair.get((line.row, line.reference)),
            cost=_computation(line.cell, everything) if line.error.count else None,
        )
        for line in lines
    ]
    setting, rows = lines[0].setting, {line.row for line in lines}
    note = BRIEFLY_EXPLAINED if brief else f"{ROWS_EXPLAINED} {_test_noise(lines)}"
    tables = [_rows_table(f"{experiment.capitalize()}: {setting}", lines, note)]
    primary = [result for result in results if {result.row, result.reference} <= rows]
    if not brief:
        families = groupby(primary, key=lambda result: result.family)
        tables += [_family_table(f"{family}: {setting}", list(members)) for family, members in families]
    notes = [f"{line.row}: {note}" for line in lines for note in line.notes]
    notes += [] if brief else _core_hours(lines)
    values = {"rows": [plain(line, STUDY_FIELDS) for line in lines], "primary": plain(primary)}
    return ResultTables(experiment, lines, runs, tables, notes, values, primary=primary)


def _computation(cell: ResultCell, everything: Sequence[ResultCell]) -> float:
    """Return a training's computation in that of the first row: its runs come from machines of different speed."""
    job, plain = cell.jobs[0], next(other.jobs[0] for other in everything if other.setting == cell.setting)
    return job.step_cost() * job.epochs / (plain.step_cost() * plain.epochs)


def _rows_table(title: str, lines: Sequence[ResultLine], note: str) -> Table:
    isolates: Column[ResultLine] = ("isolates", lambda line: text(line.cell.table_row.isolates or NOTHING))
    holm: Column[ResultLine] = ("Holm p", lambda line: _p(line.comparison.adjusted if line.comparison else None))
    columns: list[Column[ResultLine]] = [
        ("row", lambda line: text(line.row)),
        *([isolates] if any(line.cell.table_row.isolates for line in lines) else []),
        ("error %", lambda line: spread(line.error)),
        ("n", lambda line: number(line.error.count)),
        ("compared with", lambda line: text(line.reference or NOTHING)),
        ("difference", lambda line: _difference(line.difference, line.comparison)),
        ("seeds won", lambda line: _won(line.won, line.difference)),
        *([holm] if any(line.comparison for line in lines) else []),
        ("NLL", lambda line: spread(line.nll, 3)),
        ("cost", lambda line: number(line.cost, "{:.1f}")),
    ]
    return column_table(title, columns, lines, note)


def _family_table(title: str, results: Sequence[ComparisonResult]) -> Table:
    columns: list[Column[ComparisonResult]] = [
        ("comparison", lambda result: text(result.name)),
        ("n", lambda result: number(result.difference.count if result.difference else 0)),
        ("difference", lambda result: _difference(result.difference, result)),
        ("seeds won", lambda result: _won(result.won, result.difference)),
        ("p", lambda result: _p(result.p)),
        ("Holm p", lambda result: _p(result.adjusted)),
        ("verdict", lambda result: Cell(result.verdict, strong=bool(result.winner))),
    ]
    return column_table(title, columns, results, PRIMARY_EXPLAINED.format(family=results[0].family_size))


def screening_tables(protocol: Study, cells: Sequence[ResultCell], runs: ResultRuns) -> ResultTables:
    """Return the table of the screening, and its choices."""
    lines = screening_lines(protocol, cells, runs)
    columns: list[Column[ResultLine]] = [
        ("row", lambda line: text(line.row)),
        ("probability", lambda line: number(line.cell.probability, "{:g}")),
        ("held-out error %", lambda line: spread(line.error)),
        ("n", lambda line: number(line.error.count)),
        ("NLL", lambda line: spread(line.nll, 3)),
        ("choice", lambda line: text("taken" if line.chosen else "")),
    ]
    choices = {line.row: line.cell.probability for line in lines if line.chosen}
    undecided = [row for row in dict.fromkeys(line.row for line in lines) if row not in choices]
    sentences = [SCREENING_EXPLAINED]
    if choices:
        sentences.append(f"Taken: {'; '.join(f'{row}: {value:g}' for row, value in choices.items())}.")
    if undecided:
        sentences.append(f"Not decided yet: {'; '.join(undecided)}.")
    table = column_table(f"Screening: {lines[0].setting}", columns, lines, " ".join(sentences))
    notes = [f"{line.row}, probability {line.cell.probability:g}: {note}" for line in lines for note in line.notes]
    notes += _core_hours(lines)
    values = {"rows": [plain(line, SCREENING_FIELDS) for line in lines], "choices": choices}
    return ResultTables("screening", lines, runs, [table], notes, values)


def _core_hours(lines: Sequence[ResultLine]) -> list[str]:
    hours = core_hours(run for line in lines for run in line.finished.values())
    return [f"Training took {hours:.1f} core-hours, computed from the fastest part of each run."] if hours else []


def _difference(value: Difference | None, result: ComparisonResult | None) -> Cell:
    """Return a difference without its count, which has a column; bold where a primary comparison is won."""
    if value is None:
        return Cell(NOTHING)
    return Cell(value.amount, value.mean, result is not None and bool(result.winner))


def _won(won: int, difference: Difference | None) -> Cell:
    return Cell(NOTHING) if difference is None else Cell(f"{won} of {difference.count}", float(won))


def _p(value: float | None) -> Cell:
    return number(value, "{:.4f}")


def _test_noise(lines: Sequence[ResultLine]) -> str:
    """Name what seeds do not measure: other test images."""
    sentence = "Seeds measure this test set: intervals and p values do not cover the choice of its images."
    for line in lines:
        if line.error.count and line.test_images:
            return f"{sentence} {_binomial(line.row, line.error, line.test_images)}"
    return sentence


def _binomial(row: str, error: Spread, images: int) -> str:
    fraction = error.mean / 100
    half_width = 100 * 1.96 * math.sqrt(fraction * (1 - fraction) / images)
    return f"Another {images:,} test images would move the error of {row} by ± {half_width:.1f} points (95 %)."
