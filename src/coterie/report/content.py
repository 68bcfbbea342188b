"""What a report is made of: sections of tables, figures and sentences, whatever they are written as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from .runs import Spread


@dataclass(frozen=True)
class Cell:
    """A table's cell: what is shown, and the number it is sorted by where it is one."""

    text: str
    value: float | None = None
    strong: bool = False


@dataclass
class Table:
    """Rows of cells under named columns."""

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    note: str = ""

    def numeric(self, column: int) -> bool:
        return any(row[column].value is not None for row in self.rows)


@dataclass
class Figure:
    """A picture with its caption."""

    title: str
    svg: Markup
    note: str = ""
    legend: list[tuple[str, str]] = field(default_factory=list)
    """Names of the series, each with the CSS class that draws it."""


@dataclass
class Section:
    """A heading, a sentence and what follows."""

    name: str
    title: str
    lead: str = ""
    blocks: list[Table | Figure] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What cannot be shown, and why."""

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    @property
    def figures(self) -> list[Figure]:
        return [block for block in self.blocks if isinstance(block, Figure)]


def spread(value: Spread, digits: int = 2, strong: bool = False) -> Cell:
    return Cell(value.text(digits), value.mean if value.count else None, strong)


def number(value: float | None, form: str = "{:,.0f}") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell("–")
    return Cell(form.format(value), value)


def text(value: object) -> Cell:
    return Cell(str(value))
