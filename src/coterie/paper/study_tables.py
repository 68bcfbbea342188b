"""The study's tables: made once, written for the terminal, as Markdown, as JSON and into the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..metrics.seeds import Difference, Spread
from ..report.content import ReportSection
from ..report.table import NOTHING, Cell, Table, number, print_table, spread, text, to_markdown
from .render import provenance
from .results import Origin
from .study import HELD_OUT, Study
from .study_results import (
    LEVEL,
    ComparisonResult,
    ScreeningLine,
    StudyLine,
    StudyRuns,
    compare_primary,
    screening_lines,
    study_lines,
)
from .tables import Cell as StudyCell

ROWS_EXPLAINED = (
    "Top-1 error of the last epoch in per cent, mean ± standard deviation over n seeds; NLL of the same network. "
    "Differences in error are paired over the seeds that both rows have, ± half their 95 % confidence interval "
    "(Student's t). Seeds won: with how many of them the row errs less than the row it is compared with. "
    "Cost: training time, each run's as if all of it had gone as fast as its fastest stretch, that of alone is 1."
)
PRIMARY_EXPLAINED = (
    "p: exact paired sign-flip test over the seeds, two-sided. Holm p: adjusted by Holm's method over the "
    f"{{family}} primary comparisons of this regime. A win: all planned seeds are there, Holm p < {LEVEL:g}."
)
SCREENING_EXPLAINED = (
    f"Top-1 error in per cent on {HELD_OUT:,} training images a class that no row trains with, mean ± standard "
    "deviation over n seeds, none of them the study's. The test images are not used. A row takes the probability "
    "with the lowest mean error."
)


@dataclass(frozen=True)
class StudyTables:
    """Tables with what is to be said below them, and the same as plain values."""

    experiment: str
    tables: Sequence[Table]
    notes: Sequence[str]
    """What is missing, partial or odd, and of which row."""
    origins: Sequence[Origin]
    plain: dict[str, Any]
    started: bool
    """Whether any run is finished."""
    lines: Sequence[StudyLine] = ()
    """What the tables of the study and of its split are made of."""

    def show(self, console: Console | None = None) -> None:
        """Print them on a terminal."""
        console = console or Console()
        for table in self.tables:
            print_table(table, console)
        for note in self.notes:
            console.print(note, highlight=False, markup=False, soft_wrap=True)

    def markdown(self) -> str:
        """Write them as Markdown."""
        parts = [f"{to_markdown(table)}\n{table.note}\n" for table in self.tables]
        notes = "".join(f"- {note}\n" for note in self.notes)
        return "\n".join([*parts, *([notes] if notes else [])]) + provenance(self.origins)


def study_tables(
    experiment: str,
    protocol: Study,
    cells: Sequence[StudyCell],
    everything: Sequence[StudyCell],
    out: Path,
    against: str = "",
) -> StudyTables:
    """The tables of the study, its screening or its split from the runs in a directory."""
    runs = StudyRuns(out)
    setting = cells[0].setting.title
    if experiment == "screening":
        return _screening(screening_lines(protocol, cells, runs), f"Screening: {setting}")
    lines = study_lines(experiment, protocol, cells, everything, runs, against)
    tables = [_rows(f"{experiment.capitalize()}: {setting}", lines)]
    primary: list[ComparisonResult] = []
    if experiment == "study" and protocol.primary:
        rows = {cell.row for cell in cells}
        results = compare_primary(protocol, everything, runs)
        primary = [r for r in results if {r.comparison.row, r.comparison.reference} <= rows]
        if primary:
            tables.append(_primary(f"Primary comparisons: {setting}", primary, len(protocol.primary)))
    return StudyTables(
        experiment,
        tables,
        [f"{line.row}: {note}" for line in lines for note in line.notes],
        [origin for line in lines for origin in line.origins],
        {"rows": [line.plain() for line in lines], "primary": [result.plain() for result in primary]},
        any(line.error.count for line in lines),
        lines,
    )


def study_section(tables: Sequence[StudyTables]) -> list[ReportSection]:
    """One section of the report with the tables that have finished runs, or none."""
    blocks = [table for each in tables if each.started for table in each.tables]
    lead = "Rows compared over the same seeds, each with its own training images; planned in docs/study.md."
    return [ReportSection("study", "The study", lead, list(blocks))] if blocks else []


def _rows(title: str, lines: Sequence[StudyLine]) -> Table:
    split = any(line.isolates for line in lines)
    columns = ["row", *(["isolates"] if split else []), "error %", "n", "compared with", "difference", "seeds won"]
    primary = any(line.comparison for line in lines)
    columns += [*(["Holm p"] if primary else []), "NLL", "cost"]
    rows = []
    for line in lines:
        result = line.comparison
        strong = result is not None and bool(result.winner)
        row = [text(line.row), *([text(line.isolates or NOTHING)] if split else [])]
        row += [spread(line.error), number(line.error.count), text(line.reference or NOTHING)]
        row += [_difference(line.difference, strong), _won(line.won, line.difference)]
        row += [_p(result.adjusted if result else None)] if primary else []
        rows.append([*row, spread(line.nll, 3), number(line.cost, "{:.1f}")])
    return Table(title, columns, rows, f"{ROWS_EXPLAINED} {_test_noise(lines)}")


def _primary(title: str, results: Sequence[ComparisonResult], family: int) -> Table:
    columns = ["comparison", "n", "difference", "seeds won", "p", "Holm p", "verdict"]
    rows = [
        [
            text(result.comparison.name),
            number(result.difference.count if result.difference else 0),
            _difference(result.difference, bool(result.winner)),
            _won(result.won, result.difference),
            _p(result.p),
            _p(result.adjusted),
            Cell(result.verdict, strong=bool(result.winner)),
        ]
        for result in results
    ]
    return Table(title, columns, rows, PRIMARY_EXPLAINED.format(family=family))


def _screening(lines: Sequence[ScreeningLine], title: str) -> StudyTables:
    columns = ["row", "probability", "held-out error %", "n", "NLL", "choice"]
    rows = [
        [
            text(line.row),
            number(line.probability, "{:g}"),
            spread(line.error, strong=line.chosen),
            number(line.error.count),
            spread(line.nll, 3),
            Cell("taken" if line.chosen else "", strong=line.chosen),
        ]
        for line in lines
    ]
    choices = {line.row: line.probability for line in lines if line.chosen}
    open_rows = [row for row in dict.fromkeys(line.row for line in lines) if row not in choices]
    taken = "; ".join(f"{row}: {probability:g}" for row, probability in choices.items())
    sentences = [SCREENING_EXPLAINED]
    sentences += [f"Taken: {taken}."] if choices else []
    sentences += [f"Not decided yet: {'; '.join(open_rows)}."] if open_rows else []
    return StudyTables(
        "screening",
        [Table(title, columns, rows, " ".join(sentences))],
        [f"{line.row}, probability {line.probability:g}: {note}" for line in lines for note in line.notes],
        [origin for line in lines for origin in line.origins],
        {"rows": [line.plain() for line in lines], "choices": choices},
        any(line.error.count for line in lines),
    )


def _difference(value: Difference | None, strong: bool) -> Cell:
    if value is None:
        return Cell(NOTHING)
    interval = "" if value.half_width is None else f" ± {value.half_width:.2f}"
    return Cell(f"{value.mean:+.2f}{interval}", value.mean, strong)


def _won(won: int, difference: Difference | None) -> Cell:
    return Cell(NOTHING) if difference is None else Cell(f"{won} of {difference.count}", float(won))


def _p(value: float | None) -> Cell:
    return number(value, "{:.4f}")


def _test_noise(lines: Sequence[StudyLine]) -> str:
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
