"""A name becomes a factory of networks. Every function in an `__all__` of this folder is a name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import InputError, unknown


def available() -> dict[str, Callable[..., nn.Module]]:
    """Our own networks by name; a new file is found without being listed anywhere."""
    found: dict[str, Callable[..., nn.Module]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found |= {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return found


def factory(
    name: str, num_classes: int, in_channels: int, options: dict[str, Any] | None = None
) -> Callable[[], nn.Module]:
    """A function without arguments that makes the named network for this many classes and channels."""
    ours = available()
    if name not in ours:
        raise unknown("model", name, ours)
    make = ours[name]
    try:
        make(num_classes=num_classes, in_channels=in_channels, **(options or {}))
    except TypeError as error:
        raise InputError(f"Model {name} does not take these options: {error}.") from None
    return lambda: make(num_classes=num_classes, in_channels=in_channels, **(options or {}))
