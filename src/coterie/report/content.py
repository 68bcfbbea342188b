"""What a report is made of: sections of tables, figures and sentences, whatever they are written as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from .table import Cell, Table

FOLD = 6
"""More figures of single recipes than this are folded away."""


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
    wide: bool = False
    """A picture takes the width of the page, where it needs it."""


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
