"""Replace short names and paths in options by what they stand for, in flags, YAML files and Python calls alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..data import find_by_path
from ..files import read_yaml
from ..methods import available
from ..names import PARTS
from .specs import class_spec, import_class

HELP = tuple(f"--{part}.help" for part in PARTS)
NAMED = (*(f"--{part}" for part in PARTS), *HELP, "--config")
"""The flags whose values are names that `expand_flags` looks at."""


def full_name(method: str) -> str:
    """Return `coterie.PCL` for `PCL`: torch.export leaves classes with the same short names in the process."""
    return f"coterie.{method}" if method in available() else method


def data_by_path(data: Any) -> Any:
    """Return the spec of the set that a directory or table stands for; anything else as it is."""
    name, options = (data.get("class_path"), data.get("init_args")) if isinstance(data, Mapping) else (data, None)
    by_path = find_by_path(str(name)) if isinstance(name, str | Path) else None
    return {"class_path": by_path[0], "init_args": {**by_path[1], **(options or {})}} if by_path else data


def own_optimizer(optimizer: Any) -> Any:
    """Return the spec of an optimiser with its class's own defaults, not those of a recipe's SGD."""
    spec = optimizer if isinstance(optimizer, Mapping) else {"class_path": optimizer}
    name = str(spec.get("class_path"))
    try:
        cls = import_class(name) if "." in name else getattr(torch.optim, name)
    except (ImportError, AttributeError, ValueError):
        return optimizer  # the parser says what is wrong with it
    if not isinstance(cls, type) or cls is torch.optim.SGD:
        return optimizer
    return class_spec(cls, spec.get("init_args") or {})


def expand_flags(words: list[str], defaults: Mapping[str, str]) -> list[str]:
    """Return the words of a command line with full names.

    Args:
        words: `--flag=value` for the flags in NAMED, if they have a value.
        defaults: the classes of the options that are not among the words.
    """
    values = {flag: value for flag, equals, value in (word.partition("=") for word in words) if equals}
    expanded: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in HELP and not equals:  # of the class that is named beside it
            part = flag.removesuffix(".help")
            value = values.get(part) or defaults.get(part.removeprefix("--"), "")
        if flag in ("--method", "--method.help") and value:
            expanded.append(f"{flag}={full_name(value)}")
        elif flag in HELP and value:
            expanded.append(f"{flag}={value}")
        elif flag == "--data" and equals:
            kind, options = find_by_path(value) or (value, {})
            expanded += [f"--data={kind}", *(f"--data.{name}={option}" for name, option in options.items())]
        elif flag == "--optimizer" and equals:
            spec = own_optimizer(value)
            first = next((i for i, w in enumerate(expanded) if w.startswith("--optimizer.")), len(expanded))
            expanded.insert(first, f"--optimizer={spec if isinstance(spec, str) else json.dumps(spec)}")
        elif flag == "--config" and equals:
            expanded.append(f"--config={_expand_file(value)}")
        else:
            expanded.append(word)
    return expanded


def _expand_file(file: str) -> str:
    """Return the options of a YAML file with paths and optimisers expanded, or the file's name if it has none."""
    try:
        content = read_yaml(Path(file))
    except OSError:
        return file  # the parser says what is wrong with it
    if not isinstance(content, dict):
        return file
    expand = {"data": data_by_path, "optimizer": own_optimizer}
    expanded = {name: expand[name](value) if name in expand else value for name, value in content.items()}
    return file if expanded == content else json.dumps(expanded, default=str)
