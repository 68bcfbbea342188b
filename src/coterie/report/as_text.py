"""The tables of a report on a terminal, and as Markdown, CSV and LaTeX for a paper."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ..errors import printable
from .page import Report
from .table import print_table, to_csv, to_latex, to_markdown

FOR_A_PAPER = ("paper", "study", "results", "cost", "deployment")
"""The sections whose tables are written out as Markdown, CSV or LaTeX."""
WRITERS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}


def print_report(report: Report) -> None:
    """Print the sentences, every table of a report, and where every curve ends."""
    console = Console(highlight=False)
    for line in report.summary:
        console.print(Text(printable(line), style="bold"))
    for line in report.problems:
        console.print(Text(printable(line), style="yellow"))
    for section in report.sections:
        for reason in section.missing:
            console.print(Text(printable(reason), style="yellow"))
        for table in section.tables:
            print_table(table, console)
        for figure in section.figures + section.details:
            console.print(Text(printable(f"{figure.title}. {figure.words}")), soft_wrap=True)


def publication_tables(report: Report, form: str) -> str:
    """Return the tables for a paper, with an empty line between two of them."""
    tables = [t for s in report.sections if s.name in FOR_A_PAPER for t in s.tables]
    return "\n".join(WRITERS[form](table) for table in tables)
