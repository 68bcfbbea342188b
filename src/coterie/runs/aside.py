"""Names for what is moved out of the way, never deleted: damaged runs, runs that are begun anew, damaged files."""

from __future__ import annotations

from itertools import count
from pathlib import Path

ASIDE = "-damaged"
"""The suffix of a directory that holds such runs. Reports leave it out."""


def aside_directory(out: Path) -> Path:
    """Return the directory beside `out` for runs that are moved out of it, or that it held itself."""
    return out.resolve().with_name(out.resolve().name + ASIDE)


def free_directory(out: Path, name: str = "") -> Path:
    """Return the first of NAME-1, NAME-2, ... beside `out` that does not exist; without a name 1, 2, ..."""
    parent, prefix = aside_directory(out), f"{name}-" if name else ""
    return next(path for n in count(1) if not (path := parent / f"{prefix}{n}").exists())


def free_file(file: Path) -> Path:
    """Return the first of metrics.damaged1.jsonl, metrics.damaged2.jsonl, ... that does not exist."""
    names = (f"{file.stem}.damaged{n}{file.suffix}" for n in count(1))
    return next(path for name in names if not (path := file.with_name(name)).exists())
