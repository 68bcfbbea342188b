"""The tables of a report on a terminal, and as Markdown, CSV and LaTeX for a paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from .content import NOTHING, Cell, Table
from .page import Report

FOR_A_PAPER = ("paper", "study", "results", "cost", "deployment")
"""The sections whose tables are written out as Markdown, CSV or LaTeX."""


def print_report(report: Report) -> None:
    """The sentences, every table of a report, and where every curve ends."""
    console = Console(highlight=False)
    for line in report.summary:
        console.print(Text(line, style="bold"))
    for line in report.problems:
        console.print(Text(line, style="yellow"))
    for section in report.sections:
        for reason in section.missing:
            console.print(Text(reason, style="yellow"))
        for table in section.tables:
            console.print(terminal(table))
        for figure in section.figures + section.details:
            console.print(Text(f"{figure.title}. {figure.told}"), soft_wrap=True)


def terminal(table: Table) -> TerminalTable:
    """A table for the terminal."""
    shown = TerminalTable(title=Text(table.title), title_justify="left")
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="right" if table.numeric(i) else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row))
    return shown


def written(report: Report, form: str) -> str:
    """The tables for a paper, with an empty line between two of them."""
    write = FORMATS[form]
    tables = [t for s in report.sections if s.name in FOR_A_PAPER for t in s.tables]
    return "\n".join(write(table) for table in tables)


def markdown(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    def shown(cell: Cell) -> str:
        return f"**{_markdown(cell.text)}**" if cell.strong else _markdown(cell.text)

    rule = ["---:" if table.numeric(i) else "---" for i in range(len(table.columns))]
    head = line([_markdown(column) for column in table.columns]) + line(rule)
    return f"{_markdown(table.title)}\n\n{head}" + "".join(
        line([shown(cell) for cell in row]) for row in table.rows
    )


def _markdown(text: str) -> str:
    for character in "\\|*_`[]":
        text = text.replace(character, "\\" + character)
    return text.replace("<", "&lt;").replace("\n", " ")


def comma_separated(table: Table) -> str:
    """Full numbers; each row names its table, and where there are seeds, their deviations follow the means."""
    deviating = [any(row[i].deviation is not None for row in table.rows) for i in range(len(table.columns))]
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    heads = [
        name for i, column in enumerate(table.columns) for name in [column, *[f"{column} std"] * deviating[i]]
    ]
    out.writerow(["table", *heads])
    for row in table.rows:
        cells: list[object] = [table.title]
        for i, cell in enumerate(row):
            missing = cell.text == NOTHING
            cells.append("" if missing else cell.text if cell.value is None else cell.value)
            if deviating[i]:
                cells.append("" if cell.deviation is None else cell.deviation)
        out.writerow(cells)
    return file.getvalue()


def latex(table: Table) -> str:
    """A tabular for the booktabs package."""

    def shown(cell: Cell) -> str:
        return rf"\textbf{{{_latex(cell.text)}}}" if cell.strong else _latex(cell.text)

    places = "".join("r" if table.numeric(i) else "l" for i in range(len(table.columns)))
    head = " & ".join(_latex(column) for column in table.columns)
    body = "".join(" & ".join(shown(cell) for cell in row) + " \\\\\n" for row in table.rows)
    return (
        f"% {' '.join(table.title.split())}\n\\begin{{tabular}}{{{places}}}\n\\toprule\n{head} \\\\\n\\midrule\n"
        f"{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _latex(text: str) -> str:
    special = {c: f"\\{c}" for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {
        "[": "{[}",
        "*": "{*}",
    }  # after the end of a row these would be its options
    special |= {"<": r"$<$", ">": r"$>$", "±": r"$\pm$", "×": r"$\times$", "–": "--", "\n": " "}
    return "".join(special.get(character, character) for character in text)


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": markdown, "csv": comma_separated, "latex": latex}
