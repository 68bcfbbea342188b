"""Turn files into augmented views.

A data set is one file in this folder, its class in `__all__`.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from ..compat import import_torchvision
from ..errors import InputError
from ..names import unknown_data
from .base import Data


def data_sets() -> dict[str, type[Data]]:
    """Return every data set of this folder by name: what a module lists in `__all__`."""
    sets = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name in getattr(module, "__all__", ()):
            sets[name] = getattr(module, name)
    return sets


def find_by_path(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the set that a directory or table stands for, and the options that follow; None for other names."""
    sets = data_sets()
    if name in sets:
        return None
    for kind, cls in sets.items():
        options = cls.options_for_path(Path(name))
        if options is not None:
            if options.get("root") == ".":  # which means another directory once the working directory has changed
                options["root"] = str(Path.cwd())
            return kind, options
    if "/" in name:
        raise unknown_data(name, sets)
    return None


def find_data_set(name: str) -> tuple[type[Data], dict[str, Any]]:
    """Return the class that a name, a path or an import path stands for, and the options that follow from it."""
    sets = data_sets()
    if name in sets:
        return sets[name], {}
    if by_path := find_by_path(name):
        return sets[by_path[0]], by_path[1]
    if "." not in name:
        raise unknown_data(name, sets)
    module, _, last = name.rpartition(".")
    try:
        cls = getattr(import_torchvision(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} is no folder and cannot be imported: {error}.") from None
    if not callable(cls):
        raise InputError(f"{name} is no folder, and no class of data sets.")
    return (cls, {}) if isinstance(cls, type) and issubclass(cls, Data) else (sets["dataset"], {"source": name})


__all__ = ["Data", "data_sets", "find_by_path", "find_data_set"]
