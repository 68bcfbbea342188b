"""Data sets, and how an image becomes m augmented views. A data set is one file in this folder."""

from __future__ import annotations

import importlib
import pkgutil

from .data import Data


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


__all__ = ["Data", "available"]
