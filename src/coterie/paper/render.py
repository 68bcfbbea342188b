"""Lines become a table, on a terminal or in Markdown; a document's tables are replaced in place."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..errors import InputError, reason
from ..files import write
from ..metrics.seeds import PAIRED, Spread
from ..report.terminal import print_table
from .numbers import SAYS
from .results import Line, Origin, digits


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
        f"{line.error.count}/{max(line.seeds, line.error.count)}",
        "" if line.paper is None else str(line.paper),
        "" if line.difference is None else line.difference.text(),
        _spread(line.raw),
        _spread(line.averaged),
        cost,
        *(_spread(value, digits(name)) for name, value in line.further.items()),
    ]


def _spread(spread: Spread, digits: int = 2) -> str:
    return spread.text(digits) if spread.count else ""


def _missing(line: Line) -> str:
    """A cell without a number says why."""
    for word in ("failed", "damaged", "partial"):
        if any(word in note for note in line.notes):
            return word
    return "missing"


EXPLAINED = (
    "Top-1 error of the last epoch in per cent, mean ± standard deviation over the finished runs. "
    f"{PAIRED} Raw and averaged: the trained weights and their "
    "running average, of the peer that is deployed (of ensembles, of all peers). Cost: training time, each run's "
    "as if all of it had gone as fast as its fastest stretch (other work shared the machine), that of a teacher "
    "included; the first row's is 1."
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
        print_table(table, console)
        for line in group:
            for note in line.notes:
                console.print(f"{line.row}: {note}", highlight=False, markup=False, soft_wrap=True)
    console.print(EXPLAINED, highlight=False, soft_wrap=True)
    console.print(f"The paper: {SAYS[experiment]}", highlight=False, soft_wrap=True)


def markdown(found: Sequence[Line]) -> str:
    """The same as Markdown."""
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
    return (
        "\n".join(parts) + f"\n{EXPLAINED}\n" + provenance([origin for line in found for origin in line.origins])
    )


def provenance(origins: Sequence[Origin]) -> str:
    """When, where and from what runs come."""
    if not origins:
        return ""
    dates, commits, machines = (sorted(set(column)) for column in zip(*origins, strict=True))
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Trained {days}, commit {', '.join(commits)}, {'; '.join(machines)}.\n"


def marker(experiment: str, protocol: str, only: str = "", seeds: int | None = None, against: str = "") -> str:
    """The command, with those options that change what a table says; `seeds` if they are not the planned ones."""
    told = [experiment, "--protocol", protocol]
    told += ["--only", only] if only else []
    told += ["--seeds", str(seeds)] if seeds is not None else []
    told += ["--against", against] if against else []
    return f"<!-- coterie reproduce {shlex.join(told)} -->"


END = "<!-- end -->"


def place(file: Path, begin: str, text: str) -> None:
    """Replace what stands in a document between this line, such as a `marker`, and its `END`."""
    write(file, placed(file, begin, text))


def placed(file: Path, begin: str, text: str) -> str:
    """The document with this text in its place."""
    try:
        document = file.read_bytes().decode("utf-8")  # with the ends of lines that it has
    except FileNotFoundError:
        raise InputError(f"--into: there is no file {file}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--into: {file} cannot be read as text ({reason(error)}).") from None
    text = f"\n\n{text}\n"
    if "\r\n" in document:
        text = text.replace("\n", "\r\n")
    before, found, rest = document.partition(begin)
    old, end, after = rest.partition(END)
    if not (found and end) or "<!-- coterie" in old:  # else the end is that of the next table
        raise InputError(f"{file} has no place for this table: put '{begin}' and '{END}' where it belongs.")
    return f"{before}{begin}{text}{END}{after}"
