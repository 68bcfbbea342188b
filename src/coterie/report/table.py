"""A table and its five writers: terminal, Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Literal

import rich.table
from markupsafe import Markup, escape
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..errors import printable
from ..metrics.seeds import NOTHING, Difference, Spread

TEXT_WIDTH, LONG_TEXT = 24, 60
"""Columns that a longer text keeps before a table is folded, and that it has in a file."""


@dataclass(frozen=True)
class Cell:
    """A text, the number it shows, if it is one, and the standard deviation of that number over seeds."""

    text: str
    value: float | None = None
    strong: bool = False
    """Bold, which means a clear difference and nothing else."""
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


def text(value: object) -> Cell:
    return Cell(str(value))


def number(value: float | None, form: str = "{:,.0f}") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(NOTHING)
    return Cell(form.format(value), value)


def spread(value: Spread, digits: int = 2, note: str = "") -> Cell:
    """Show mean and deviation, with a note about the number after it."""
    words = f"{value.text(digits)}{f' ({note})' if note and value.count else ''}"
    return Cell(words, value.mean if value.count else None, deviation=value.std)


def difference(value: Difference | None) -> Cell:
    """Show a difference, bold where it is clear."""
    return Cell(NOTHING) if value is None else Cell(value.text(), value.mean, value.clear)


def keyed_table(
    title: str, columns: Sequence[tuple[str, str, str]], rows: Iterable[Mapping[str, Any]], note: str = ""
) -> Table:
    """Return a table of mappings; a column is a heading, a key and the format of its numbers.

    A missing number is shown as such.
    """
    cells = []
    for row in rows:
        values = [(row.get(key), form) for _, key, form in columns]
        cells.append([text(v) if isinstance(v, str) else number(v, form) for v, form in values])
    return Table(title, [heading for heading, _, _ in columns], cells, note)


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table; where it is wider than the screen, fold it by columns, with the first ones repeated.

    Before that, headings and texts are wrapped. No number is broken, and no word.
    """
    console = console or Console()
    if table.title:
        print_text(table.title, console, "italic")
    for widths in _fold(table, console.width if on_screen(console) else None):
        wraps = any(
            cell_len(row[i].text) > width or "\n" in row[i].text
            for row in table.rows
            for i, width in widths.items()
        )
        shown = rich.table.Table(show_lines=wraps)
        for i, width in widths.items():
            justify: Literal["left", "right"] = "right" if table.numeric(i) else "left"
            shown.add_column(Text(table.columns[i]), justify=justify, width=width)
        for row in table.rows:
            shown.add_row(*(Text(row[i].text, style="bold" if row[i].strong else "") for i in widths))
        fits = (needed := _total(widths.values())) <= console.width
        (console if fits else Console(file=console.file, width=needed)).print(shown)
    if table.note:
        print_text(table.note, console)


def print_text(sentences: str, console: Console, style: str = "") -> None:
    """Print text without control characters: on a screen wrapped between words, in a file line by line."""
    sentences = printable(sentences, lines=True)
    if on_screen(console):
        lines = (
            wrap(line, console.width, break_long_words=False, break_on_hyphens=False) or [""]
            for line in sentences.splitlines() or [""]
        )
        sentences = "\n".join("\n".join(line) for line in lines)
    console.print(Text(sentences, style=style), soft_wrap=True)


def on_screen(console: Console) -> bool:
    """Tell whether lines have a width to keep to: on a terminal, or where COLUMNS says it."""
    return console.is_terminal or "COLUMNS" in os.environ


def _fold(table: Table, room: int | None) -> list[dict[int, int]]:
    """Return the widths of the columns by number, for each piece of a table that fits into the room.

    A column with numbers is as wide as they are; a text may be wrapped to `TEXT_WIDTH`, or to its longest word. In
    a file, without a `room`, long texts are wrapped alone.
    """
    numbers = [table.numeric(i) for i in range(len(table.columns))]
    natural, least = [], []
    for i, heading in enumerate(table.columns):
        cells = [line for row in table.rows for line in row[i].text.splitlines()]
        words = cells if numbers[i] else [word for line in cells for word in line.split()]
        natural.append(max(map(cell_len, [heading, *cells])))
        longest = max((cell_len(word) for word in [*heading.split(), *words]), default=0)
        limit = 0 if numbers[i] else min(natural[i], TEXT_WIDTH if room else LONG_TEXT)
        least.append(max(longest, limit))
    if room is None:
        return [{i: natural[i] if numbers[i] else least[i] for i in range(len(natural))}]
    first = {i: least[i] for i in range(_naming_columns(table))}
    pieces = [dict(first)]
    for i in range(len(first), len(natural)):
        if _total([*pieces[-1].values(), least[i]]) > room and len(pieces[-1]) > len(first):
            pieces.append(dict(first))
        pieces[-1][i] = least[i]
    for piece in pieces:
        _widen(piece, natural, room)
    return pieces


def _naming_columns(table: Table) -> int:
    """Return how many of the first columns tell the rows apart: one, or two where the first repeats itself."""
    names = [row[0].text for row in table.rows]
    return 1 if len(set(names)) == len(names) or len(table.columns) < 3 or table.numeric(1) else 2


def _widen(piece: dict[int, int], natural: list[int], room: int) -> None:
    """Give the room that is left to the columns that are wrapped, in equal parts."""
    while _total(piece.values()) < room and (narrow := [i for i in piece if piece[i] < natural[i]]):
        for i in narrow[: room - _total(piece.values())]:
            piece[i] += 1


def _total(widths: Iterable[int]) -> int:
    """Return the width of a table with its borders."""
    return 1 + sum(width + 3 for width in widths)


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
