"""The sections of `coterie bench`, and the result they make together."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import InputError, unknown
from ..files import write
from ..report.formats import terminal
from ..report.terminal import print_table
from ..runs.environment import environment
from . import floor, growth, parts, reference, startup, steps
from .goals import judged
from .size import FULL, QUICK, Size
from .tables import about, tables

SECTIONS: dict[str, Callable[[Size], dict[str, Any]]] = {
    "startup": startup.measure,
    "steps": steps.measure,
    "floor": floor.measure,
    "reference": reference.measure,
    "parts": parts.measure,
    "growth": growth.measure,
}


def bench(quick: bool = False, only: str = "") -> dict[str, Any]:
    """Measure these sections (comma-separated; all by default)."""
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip())) or list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            raise unknown("section", name, SECTIONS)
    size = QUICK if quick else FULL
    found = {}
    for name in names:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        found[name] = SECTIONS[name](size)
    about = {name: value for name, value in environment(0).items() if name not in ("host", "directory")}
    return {
        "environment": about,
        "quick": quick,
        "size": asdict(size),
        "sections": found,
        "goals": judged(found),
    }


def check(output: Path) -> None:
    """Refuse a file that cannot be written, before half an hour has gone into it."""
    if not output.parent.is_dir():
        raise InputError(f"There is no directory {output.parent} to write {output.name} to: make it first.")
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        raise InputError(f"{output} cannot be written: choose another --output.")


def save(result: dict[str, Any], output: Path) -> None:
    """The result as a file."""
    write(output, json.dumps(result, indent=2) + "\n")


def show(result: dict[str, Any]) -> None:
    """The result as tables on the terminal."""
    console = Console(highlight=False)
    for table in tables(result):
        print_table(terminal(table), console)
        if table.note:
            console.print(table.note)
    console.print(about(result), soft_wrap=True)
