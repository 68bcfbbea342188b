"""What a report is made of: sections of tables, figures and sentences, whatever they are written as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from ..metrics.seeds import NOTHING, Difference, Spread

FOLD = 6
"""More figures of single recipes than this are folded away."""


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is shown, the number behind it where it is one, and its deviation over seeds."""

    text: str
    value: float | None = None
    strong: bool = False
    deviation: float | None = None


@dataclass
class Table:
    """Rows of cells under named columns."""

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    note: str = ""

    def numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        return any(c.value is not None for c in cells) or all(c.text == NOTHING for c in cells)


@dataclass
class Figure:
    """A picture with its caption."""

    title: str
    svg: Markup
    told: str
    """What it shows, in words."""
    note: str = ""
    legend: list[tuple[str, str]] = field(default_factory=list)
    """Names of the series, each with the CSS class that draws it."""
    detail: bool = False
    """Of one recipe alone: folded away where there are many."""


@dataclass(frozen=True)
class Picture:
    """An image as a data URI, and what is to be said about it."""

    source: str
    caption: str


@dataclass
class Gallery:
    """Pictures in a row."""

    title: str
    pictures: Sequence[Picture]
    note: str = ""


@dataclass(frozen=True)
class Tile:
    """One number of the summary, and what it is."""

    value: str
    label: str


@dataclass
class Section:
    """A heading, a sentence and what follows."""

    name: str
    title: str
    lead: str = ""
    blocks: list[Table | Figure | Gallery] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What cannot be shown, and why."""

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        """Those that are always shown."""
        found = [block for block in self.blocks if isinstance(block, Figure)]
        return [figure for figure in found if not figure.detail] if self.details else found

    @property
    def details(self) -> list[Figure]:
        """Those that are folded away: the figures of single recipes, where there are many."""
        found = [block for block in self.blocks if isinstance(block, Figure) and block.detail]
        return found if len(found) > FOLD else []

    @property
    def galleries(self) -> list[Gallery]:
        return [block for block in self.blocks if isinstance(block, Gallery)]


def by_setting(title: str, columns: Sequence[str], rows: list[list[Cell]], note: str = "") -> Table:
    """A table whose first column names network and data; where all rows have the same, the title does."""
    shared = {row[0].text for row in rows}
    if len(shared) != 1:
        return Table(title, ["network and data", *columns], rows, note)
    return Table(f"{title}, {shared.pop()}", columns, [row[1:] for row in rows], note)


def spread(value: Spread, digits: int = 2, strong: bool = False) -> Cell:
    return Cell(value.text(digits), value.mean if value.count else None, strong, value.std)


def difference(value: Difference | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(value.text(), value.mean, value.clear)


def number(value: float | None, form: str = "{:,.0f}") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(NOTHING)
    return Cell(form.format(value), value)


def text(value: object) -> Cell:
    return Cell(str(value))
