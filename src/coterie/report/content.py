"""What a report is made of: sections of tables, figures and sentences, whatever they are written as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markupsafe import Markup

from .table import Table

FOLD = 6
"""More figures of single recipes than this are folded away."""


@dataclass
class Figure:
    """A chart with its caption."""

    name: str
    """What `--figure` calls it; the charts of several recipes or settings have one name."""
    title: str
    svg: Markup
    words: str
    """What it shows, in words."""
    note: str = ""
    legend: list[tuple[str, str]] = field(default_factory=list)
    """Names of the curves, each with the CSS class that draws it."""
    detail: bool = False
    """Of one recipe alone: folded away where there are many."""


class Picture(NamedTuple):
    """An image as a data URI, and its caption."""

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


class Tile(NamedTuple):
    """One number of the summary, and what it is."""

    value: str
    label: str
    strong: bool = False
    """A clear difference."""


@dataclass
class ReportSection:
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
    def galleries(self) -> list[Gallery]:
        return [block for block in self.blocks if isinstance(block, Gallery)]

    @property
    def figures(self) -> list[Figure]:
        """Those that are always shown."""
        folding = bool(self.details)
        return [block for block in self.blocks if isinstance(block, Figure) and not (folding and block.detail)]

    @property
    def details(self) -> list[Figure]:
        """Those that are folded away: the figures of single recipes, where there are many."""
        details = [block for block in self.blocks if isinstance(block, Figure) and block.detail]
        return details if len(details) > FOLD else []
