"""Turn peers and losses into loss terms.

A method is one file in this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from .base import Method


@cache  # reading options asks a hundred times
def available() -> dict[str, type[Method]]:
    """Return every method of this folder by its class name; a new file needs no registration."""
    methods = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for name, item in vars(module).items():
            if (
                isinstance(item, type)
                and issubclass(item, Method)
                and item is not Method
                and item.__module__ == module.__name__
            ):
                methods[name] = item
    return methods


__all__ = ["Method", "available"]
