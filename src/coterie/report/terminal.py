"""A table on a terminal: never squeezed, whatever the width, so that no number loses its end."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def print_table(table: Table, console: Console | None = None) -> None:
    """As wide as it needs, if the terminal is not: then lines are wrapped, or go on in the file."""
    console = console or Console()
    needed = Console(width=10_000).measure(table).maximum
    Console(file=console.file, width=max(console.width, needed)).print(table)
