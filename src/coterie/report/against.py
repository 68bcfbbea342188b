"""`coterie report --against NAME`: choose the groups that the others are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError, unknown
from .groups import Group, settings


def mark_reference(groups: Sequence[Group], name: str) -> None:
    """Make the group of this name the reference of its setting, wherever there is one.

    A name is a label as the tables have it, a method, or a directory that holds runs of one group.
    """
    matches = [g for same in settings(groups).values() for g in _match(same, name)]
    if not matches:
        raise unknown("method or run", name, dict.fromkeys(g.label for g in groups))
    for g in matches:
        g.is_reference = True


def _match(groups: Sequence[Group], name: str) -> list[Group]:
    """Return the one group of a setting that has this name, or none."""
    by_label = [g for g in groups if g.label == name]
    by_method = [g for g in groups if g.method.lower() == name.lower()]
    by_directory = [g for g in groups if any(_is_in(run.path, Path(name)) for run in g.runs)]
    for matches in (by_label, by_method, by_directory):
        if len(matches) > 1:
            labels = ", ".join(f"'{g.label}'" for g in matches)
            raise InputError(
                f"`against` '{name}' is {len(matches)} recipes of {matches[0].setting}: name one of {labels}."
            )
        if matches:
            return matches
    return []


def _is_in(run: Path, directory: Path) -> bool:
    return directory.is_dir() and run.resolve().is_relative_to(directory.resolve())
