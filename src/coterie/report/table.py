"""A table and its five writers: terminal, Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import rich.table
from markupsafe import Markup, escape
from rich.console import Console
from rich.text import Text

from ..errors import printable
from ..metrics.seeds import NOTHING, Difference, Spread


@dataclass(frozen=True)
class Cell:
    """A text, the number it shows, if it is one, and the standard deviation of that number over seeds."""

    text: str
    value: float | None = None
    strong: bool = False
    deviation: float | None = None


@dataclass
class Table:
    """Rows of cells under named columns; `note` explains them."""

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        """Make every text printable: names of classes, files and runs come from anywhere."""
        self.title, self.note = printable(self.title, lines=True), printable(self.note, lines=True)
        self.columns = [printable(column, lines=True) for column in self.columns]
        self.rows = [[replace(cell, text=printable(cell.text, lines=True)) for cell in row] for row in self.rows]

    def numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        return any(c.value is not None for c in cells) or all(c.text == NOTHING for c in cells)


def text(value: object, strong: bool = False) -> Cell:
    return Cell(str(value), strong=strong)


def number(value: float | None, form: str = "{:,.0f}", strong: bool = False) -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(NOTHING)
    return Cell(form.format(value), value, strong)


def spread(value: Spread, digits: int = 2, strong: bool = False) -> Cell:
    return Cell(value.text(digits), value.mean if value.count else None, strong, value.std)


def difference(value: Difference | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(value.text(), value.mean, value.clear)


def keyed_table(
    title: str, columns: Sequence[tuple[str, str, str]], rows: Iterable[Mapping[str, Any]], note: str = ""
) -> Table:
    """Return a table of mappings; a column is a heading, a key and the format of its numbers.

    A missing number is shown as such; a mapping with a true `strong` is a bold row.
    """
    cells = []
    for row in rows:
        strong = bool(row.get("strong"))
        values = [(row.get(key), form) for _, key, form in columns]
        cells.append([text(v, strong) if isinstance(v, str) else number(v, form, strong) for v, form in values])
    return Table(title, [heading for heading, _, _ in columns], cells, note)


def print_table(table: Table, console: Console | None = None, wrap: bool = False) -> None:
    """Print a table, wider than the terminal where its numbers need it, so that none loses its end.

    With `wrap` long texts are wrapped instead, with a rule between two rows.
    """
    console = console or Console()
    shown = rich.table.Table(
        title=Text(table.title) if table.title else None, title_justify="left", show_lines=wrap
    )
    for i, column in enumerate(table.columns):
        shown.add_column(Text(column), justify="right" if table.numeric(i) else "left")
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row))
    needed = 0 if wrap else Console(width=10_000).measure(shown).maximum
    Console(file=console.file, width=max(console.width, needed)).print(shown)
    if table.note:
        console.print(table.note, highlight=False, markup=False, soft_wrap=True)


MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\|*_`[]"} | {"<": "&lt;", "\n": " "})


def to_markdown(table: Table) -> str:
    rule = ["---:" if table.numeric(i) else "---" for i in range(len(table.columns))]
    head, *body = _escaped(table, MARKDOWN, "**{}**")
    lines = "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))
    return f"{table.title.translate(MARKDOWN)}\n\n{lines}"


def _escaped(table: Table, escapes: dict[int, str], bold: str) -> list[list[str]]:
    """Return the texts of head and rows as a markup language writes them."""
    rows = [
        [(bold if cell.strong else "{}").format(cell.text.translate(escapes)) for cell in row]
        for row in table.rows
    ]
    return [[column.translate(escapes) for column in table.columns], *rows]


def to_csv(table: Table) -> str:
    """Write full numbers; each row names its table, and where there are seeds, deviations follow the means."""
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


LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "[": "{[}",  # after the end of a row, [ and * would start its options
        "*": "{*}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "–": "--",
        "\n": " ",
    }
)


def to_latex(table: Table) -> str:
    """Write a tabular for the booktabs package."""
    places = "".join("r" if table.numeric(i) else "l" for i in range(len(table.columns)))
    head, *body = (" & ".join(line) + " \\\\\n" for line in _escaped(table, LATEX, r"\textbf{{{}}}"))
    return (
        f"% {' '.join(table.title.split())}\n\\begin{{tabular}}{{{places}}}\n\\toprule\n{head}\\midrule\n"
        f"{''.join(body)}\\bottomrule\n\\end{{tabular}}\n"
    )


def to_html(table: Table, sortable: bool = True) -> Markup:
    """Write a `<table>`; with `sortable` its heads are buttons, by which the page's script sorts `data-value`."""
    numeric = ["n" if table.numeric(i) else "" for i in range(len(table.columns))]
    button = '<button type="button">{}</button>' if sortable else "{}"
    heads = (
        f'<th scope="col" class="{kind}">{button.format(escape(column))}</th>'
        for column, kind in zip(table.columns, numeric, strict=True)
    )
    rows = (
        "<tr>" + "".join(_html(cell, kind) for cell, kind in zip(row, numeric, strict=True)) + "</tr>\n"
        for row in table.rows
    )
    return Markup(
        f"<table>\n<caption>{escape(table.title)}</caption>\n<thead><tr>{''.join(heads)}</tr></thead>\n"
        f"<tbody>\n{''.join(rows)}</tbody>\n</table>"
    )


def _html(cell: Cell, kind: str) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value}"'
    return f'<td class="{kind}{" strong" if cell.strong else ""}"{value}>{escape(cell.text)}</td>'
