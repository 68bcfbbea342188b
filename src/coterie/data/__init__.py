"""Turn files into augmented views.

A data set is one file in this folder, its class in `__all__`.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from ..compat import import_torchvision
from ..errors import InputError, unknown
from .base import Data


def data_sets() -> dict[str, type[Data]]:
    """Return every data set of this folder by name: what a module lists in `__all__`."""
    sets = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name in getattr(module, "__all__", ()):
            sets[name] = getattr(module, name)
    return sets


def find_data_set(name: str) -> tuple[type[Data], dict[str, Any]]:
    """Return the class that a name, a folder or an import path stands for, and the options that follow from it."""
    sets = data_sets()
    if name in sets:
        return sets[name], {}
    if Path(name).is_dir():
        return sets["folder"], {"root": name}
    if "." not in name or "/" in name:
        raise unknown("data set or folder", name, sets)
    module, _, last = name.rpartition(".")
    try:
        cls = getattr(import_torchvision(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} is no folder and cannot be imported: {error}.") from None
    return (cls, {}) if isinstance(cls, type) and issubclass(cls, Data) else (sets["dataset"], {"source": name})


__all__ = ["Data", "data_sets", "find_data_set"]
