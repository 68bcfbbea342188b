"""Show the options that errors of the library name in backticks, `limit`, as flags, --data.limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from inspect import Parameter, signature


def with_flags(message: str, name: str, command: Callable[..., None]) -> str:
    """Replace the names of this command's options that stand in backticks by their flags."""
    if "`" not in message:
        return message
    flags = _flags(name, command)

    def flag(match: re.Match[str]) -> str:
        nested = f"--{match[1]}" if f"--{match[1].partition('.')[0]}" in flags.values() else match[0]
        return flags.get(match[1], nested if "." in match[1] else match[0])

    return re.sub(r"`([a-z][\w.]*)`", flag, message)


def _flags(name: str, command: Callable[..., None]) -> dict[str, str]:
    """Return the flags of a command by the names of the options."""
    from ..config.recipe import Recipe
    from ..data import data_sets
    from ..data.mix import CutMix, MixUp
    from ..methods import available as methods

    if name == "data":  # takes the options of a set without the prefix
        return _named(["views", "images", "sheet", *_parameters(data_sets().values())])
    if name in ("train", "compare"):
        parts = {"method": methods().values(), "data": data_sets().values(), "mix": (CutMix, MixUp)}
        nested = {part: _named(_parameters(kinds), part) for part, kinds in parts.items()}
        own = ["out", "restart", "trust", "methods", "seeds", "budget", *(f.name for f in fields(Recipe))]
        return nested["method"] | nested["mix"] | nested["data"] | _named(own)
    parameters = signature(command).parameters
    own = [p.name for p in parameters.values() if p.default is not Parameter.empty]
    return (_named(_parameters(data_sets().values()), "data") if "data" in parameters else {}) | _named(own)


def _parameters(kinds: Iterable[type]) -> list[str]:
    from ..config.parsing import accepted_options

    return [name for kind in kinds for name in accepted_options(kind)]


def _named(names: Iterable[str], part: str = "") -> dict[str, str]:
    """Return the flags by name: `limit` and, for an option of a part, also `data.limit`."""
    prefix = f"{part}." if part else ""
    return {key: f"--{prefix}{name}" for name in names for key in {name, prefix + name}}
