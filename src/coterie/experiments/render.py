"""Lines become a table, on a terminal or in Markdown; a document's tables are replaced in place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..report.runs import Spread
from .paper import SAYS
from .results import Line


def _columns(group: Sequence[Line]) -> list[str]:
    first = group[0]
    return [
        "",
        "error %",
        "runs",
        f"paper ({first.beside})",
        f"difference to {first.reference}",
        "raw",
        "averaged",
        "cost",
        *first.further,
    ]


def _cells(line: Line) -> list[str]:
    cost = "" if line.cost is None else f"{line.cost:.1f}"
    return [
        line.row,
        line.error.text() if line.error.count else _missing(line),
        str(line.error.count) if line.error.count >= line.seeds else f"{line.error.count}/{line.seeds}",
        "" if line.paper is None else str(line.paper),
        "" if line.difference is None else line.difference.text(),
        _spread(line.raw),
        _spread(line.averaged),
        cost,
        *map(_spread, line.further.values()),
    ]


def _spread(spread: Spread) -> str:
    return spread.text() if spread.count else ""


def _missing(line: Line) -> str:
    """A cell without a number says why."""
    for word in ("failed", "damaged", "partial"):
        if any(word in note for note in line.notes):
            return word
    return "missing"


EXPLAINED = (
    "Top-1 error of the last epoch in per cent, mean ± standard deviation over the finished runs. "
    "Differences are paired over seeds, ± half their 95 % confidence interval (Student's t). "
    "Raw and averaged: peer 1's two sets of weights. Cost: measured training time in that of the first row."
)


def show(experiment: str, found: Sequence[Line], console: Console | None = None) -> None:
    """A table for each setting, and below it what is missing."""
    console = console or Console()
    for setting, members in groupby(found, key=lambda line: line.setting):
        group = list(members)
        table = Table(title=f"{experiment}: {setting}")
        for i, column in enumerate(_columns(group)):
            table.add_column(column, justify="right" if i else "left", no_wrap=i == 0)
        for line in group:
            clear = line.difference is not None and line.difference.clear
            table.add_row(*_cells(line), style="bold" if clear else None)
        needed = Console(width=1000).measure(table).maximum
        Console(file=console.file, width=max(console.width, needed)).print(table)  # never squeezed
        for line in group:
            for note in line.notes:
                console.print(f"{line.row}: {note}", highlight=False, soft_wrap=True)
    console.print(f"The paper: {SAYS[experiment]}", highlight=False, soft_wrap=True)


def markdown(found: Sequence[Line]) -> str:
    """The same as Markdown; differences whose interval leaves out zero are bold."""
    parts = []
    for setting, members in groupby(found, key=lambda line: line.setting):
        group = list(members)
        columns = _columns(group)
        rows = [columns, ["---", *["--:"] * (len(columns) - 1)]]
        for line in group:
            cells = _cells(line)
            if line.difference is not None and line.difference.clear:
                cells[4] = f"**{cells[4]}**"
            rows.append(cells)
        text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        notes = "".join(f"\n- {line.row}: {note}" for line in group for note in line.notes)
        parts.append(f"**{setting}**\n\n{text}\n" + (f"{notes}\n" if notes else ""))
    return "\n".join(parts) + f"\n{EXPLAINED}\n"


def marker(experiment: str, protocol: str, against: str = "") -> str:
    compared = f" --against {shlex.quote(against)}" if against else ""
    return f"<!-- coterie reproduce {experiment} --protocol {protocol}{compared} -->"


END = "<!-- end -->"


def place(file: Path, begin: str, text: str) -> None:
    """Replace what stands in a document between this line, a `marker`, and the next `END`."""
    if not file.is_file():
        raise InputError(f"--into: there is no file {file}.")
    document = file.read_text()
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(document):
        raise InputError(f"{file} has no place for this table: put '{begin}' and '{END}' where it belongs.")
    file.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n{END}", document))
