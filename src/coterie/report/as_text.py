"""The tables of a report on a terminal, and as Markdown, CSV and LaTeX for a paper."""

from __future__ import annotations

from rich.console import Console

from ..errors import printable
from .page import Report
from .table import print_table, print_text, to_csv, to_latex, to_markdown

FOR_A_PAPER = ("paper", "study", "results", "cost", "deployment")
"""The sections whose tables are written out as Markdown, CSV or LaTeX."""
WRITERS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}


def print_report(report: Report) -> None:
    """Print the sentences, every table of a report, and where every curve ends."""
    console = Console(highlight=False)
    for line in report.summary:
        print_text(printable(line), console)
    for line in report.problems:
        print_text(printable(line), console, "yellow")
    for section in report.sections:
        for reason in section.missing:
            print_text(printable(reason), console, "yellow")
        for table in section.tables:
            print_table(table, console)
        for figure in section.figures + section.details:
            print_text(printable(f"{figure.title}. {figure.words}"), console)


def publication_tables(report: Report, form: str) -> str:
    """Return the tables for a paper, with an empty line between two of them."""
    tables = [t for s in report.sections if s.name in FOR_A_PAPER for t in s.tables]
    return "\n".join(WRITERS[form](table) for table in tables)
