"""Tables of results, written for the terminal, as Markdown and as JSON; the paper's, with ours beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from rich.console import Console

from ..metrics.seeds import PAIRED, Spread
from ..report.table import (
    NOTHING,
    Cell,
    Table,
    difference,
    number,
    print_table,
    print_text,
    spread,
    text,
    to_markdown,
)
from .numbers import CONCLUSIONS
from .readings import reading_digits
from .results import ComparisonResult, ResultLine, ResultRuns

EXPLAINED = (
    "Top-1 error of the last epoch in per cent, mean ± standard deviation over the finished runs. "
    f"{PAIRED} Raw: the error with the trained weights of the deployed peer; averaged: with their running "
    "average; for ensembles, of all peers. Cost: training time relative to the first row, a teacher's "
    "included. Other work shared the machine, so a row's time is computed from the fastest part of its runs."
)
BRIEFLY_EXPLAINED = (
    "Top-1 error of the last epoch, mean ± standard deviation over seeds; difference over the common seeds (how "
    "many) ± half its 95 % confidence interval, bold where that excludes zero; cost: training time."
)
PAPER_FIELDS = (
    *("setting", "row", "seeds", "error", "raw", "averaged", "paper", "beside", "reference", "difference"),
    *("cost", "further", "notes", "origins"),
)
"""What JSON has of a line."""
COMPARISON_FIELDS = ("name", "row", "reference", "seeds", "difference", "won", "p", "adjusted", "verdict")
ATTRIBUTES = {
    "beside": "cell.paper_setting",
    "isolates": "cell.table_row.isolates",
    "paper": "cell.paper",
    "probability": "cell.probability",
}
"""The fields of JSON that are not the line's attribute of that name."""

T = TypeVar("T")
Column = tuple[str, Callable[[T], Cell]]
"""A column's heading, and its cell for a line."""


@dataclass(frozen=True)
class ResultTables:
    """Tables with what is to be said below them, and the same as plain values."""

    experiment: str
    lines: Sequence[ResultLine]
    runs: ResultRuns
    tables: Sequence[Table]
    notes: Sequence[str]
    """What is missing, partial or odd, and of which row."""
    plain: Any
    conclusion: str = ""
    """What the paper concludes, for the terminal."""
    primary: Sequence[ComparisonResult] = ()
    """The study's primary comparisons."""

    def show(self, console: Console | None = None) -> None:
        """Print them on a terminal."""
        console = console or Console()
        for table in self.tables:
            print_table(table, console)
        for note in (*self.notes, *([self.conclusion] if self.conclusion else [])):
            print_text(note, console)

    def markdown(self) -> str:
        """Return them as Markdown, with when, where and from what the runs come."""
        parts = [to_markdown(table) + (f"\n{table.note}\n" if table.note else "") for table in self.tables]
        notes = "".join(f"- {note}\n" for note in self.notes)
        return "\n".join([*parts, *([notes] if notes else [])]) + self._provenance()

    def _provenance(self) -> str:
        origins = {origin for line in self.lines for origin in line.origins}
        if not origins:
            return ""
        dates, commits, machines = (sorted(set(column)) for column in zip(*origins, strict=True))
        days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        return f"Trained {days}, commit {', '.join(commits)}, {'; '.join(machines)}.\n"


def plain(value: Any, fields: Sequence[str] = ()) -> Any:
    """Return a result as values that JSON has; of a line, these fields."""
    if fields:
        return {name: plain(attrgetter(ATTRIBUTES.get(name, name))(value)) for name in fields}
    if isinstance(value, Spread):
        mean = value.mean if value.count else None
        return {"mean": mean, "std": value.std, "count": value.count, "values": list(value.values)}
    if isinstance(value, ComparisonResult):
        return plain(value, COMPARISON_FIELDS)
    if hasattr(value, "_asdict"):
        return value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def column_table(title: str, columns: Sequence[Column[T]], lines: Sequence[T], note: str = "") -> Table:
    rows = [[cell(line) for _, cell in columns] for line in lines]
    return Table(title, [heading for heading, _ in columns], rows, note)


def paper_tables(
    experiment: str, lines: Sequence[ResultLine], runs: ResultRuns, brief: bool = False
) -> ResultTables:
    """Return a table for each setting, the last with what explains all; `brief` ones have three numbers a row."""
    groups = [list(group) for _, group in groupby(lines, key=lambda line: line.setting)]
    tables = [
        column_table(
            f"{paper_title(experiment)}: {group[0].setting}",
            brief_columns(group[0]) if brief else paper_columns(group[0]),
            group,
            (BRIEFLY_EXPLAINED if brief else EXPLAINED) if group is groups[-1] else "",
        )
        for group in groups
    ]
    notes = [
        f"{line.row if len(groups) == 1 else f'{line.row}, {line.setting}'}: {note}"
        for line in lines
        for note in line.notes
    ]
    values = [plain(line, PAPER_FIELDS) for line in lines]
    conclusion = f"The paper: {CONCLUSIONS[experiment]}"
    return ResultTables(experiment, lines, runs, tables, notes, values, conclusion)


def paper_title(experiment: str) -> str:
    """Return Table 1, Fig. 4."""
    return f"{'Fig.' if experiment.startswith('fig') else 'Table'} {experiment[-1]}"


def paper_columns(first: ResultLine, report: bool = False) -> list[Column[ResultLine]]:
    """Return the columns of a table that has this first line; `report` has those of the report's page."""
    beside: list[Column[ResultLine]] = [
        (f"paper ({first.cell.paper_setting})", _paper_number),
        (f"difference to {first.reference}", lambda line: difference(line.difference)),
    ]
    cost: Column[ResultLine] = ("cost", lambda line: number(line.cost, "{:.1f}"))
    columns: list[Column[ResultLine]] = [
        ("", lambda line: text(line.row)),
        ("error %", _error_or_state),
        ("runs", _runs_of_wanted),
        *beside,
        ("raw", lambda line: spread(line.raw)),
        ("averaged", lambda line: spread(line.averaged)),
        cost,
    ]
    if report:
        columns = [
            ("method", lambda line: text(line.row)),
            ("error %", lambda line: spread(line.error)),
            *beside,
            cost,
            ("runs", lambda line: number(line.error.count)),
        ]
    return columns + [(name, _further_cell(name)) for name in first.further]


def brief_columns(first: ResultLine) -> list[Column[ResultLine]]:
    """Return the columns for somebody who reads nothing else."""
    return [
        ("", lambda line: text(line.row)),
        ("error %", _error_or_state),
        (f"difference to {first.reference}", lambda line: difference(line.difference)),
        ("cost", lambda line: number(line.cost, "{:.1f}")),
    ]


def _further_cell(name: str) -> Callable[[ResultLine], Cell]:
    return lambda line: spread(line.further[name], reading_digits(name))


def _paper_number(line: ResultLine) -> Cell:
    paper = line.cell.paper
    return Cell(NOTHING) if paper is None else Cell(str(paper), paper.mean, deviation=paper.std)


def _runs_of_wanted(line: ResultLine) -> Cell:
    return Cell(f"{line.error.count}/{max(line.seeds, line.error.count)}", line.error.count)


def _error_or_state(line: ResultLine) -> Cell:
    """Return the error; without a number, why there is none."""
    if line.error.count:
        return spread(line.error)
    states = (word for word in ("failed", "damaged", "partial") if any(word in note for note in line.notes))
    return text(next(states, "missing"))
