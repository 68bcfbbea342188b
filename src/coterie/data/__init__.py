"""Data sets, and how an image becomes m augmented views. A data set is one file in this folder."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from ..errors import InputError, unknown
from .base import Data


def available() -> dict[str, type[Data]]:
    """Every data set in this folder by name; a new file is found without being listed anywhere."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            if isinstance(item, type) and issubclass(item, Data):
                found[name] = item
    return found


def find(name: str) -> tuple[type[Data], dict[str, Any]]:
    """The class that a name, a folder on the disk or an import path stands for, and what to make it with."""
    from .folder import folder
    from .wrapped import dataset

    if name in available():
        return available()[name], {}
    if Path(name).is_dir():
        return folder, {"root": name}
    if "." not in name or "/" in name:
        raise unknown("data set or folder", name, available())
    module, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} is no folder and cannot be imported: {error}.") from None
    return (found, {}) if isinstance(found, type) and issubclass(found, Data) else (dataset, {"source": name})


__all__ = ["Data", "available", "find"]
