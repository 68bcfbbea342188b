"""Turn a name into a network.

Every function in an `__all__` of this folder is a name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import InputError, reason
from ..names import unknown_model
from .external import call_factory, from_timm, from_torchvision, import_factory

PRETRAINED_OPTIONS = {"timm": ("pretrained", "checkpoint_path"), "torchvision": ("pretrained", "weights")}
"""Options that load initial weights; of other networks, `pretrained`."""


def networks() -> dict[str, Callable[..., nn.Module]]:
    """Return our own networks by name; a new file in this folder needs no registration."""
    factories: dict[str, Callable[..., nn.Module]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        factories |= {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return factories


def factory(
    model: str | Callable[..., nn.Module],
    num_classes: int,
    in_channels: int,
    options: dict[str, Any] | None = None,
    size: tuple[int, int] | None = None,
    fresh: bool = True,
) -> Callable[[], nn.Module]:
    """Return a function that builds a network for these classes, channels and image size.

    `model` is a name, or a function or class of the user's, which gets those of them that it takes. Without
    `fresh` no pretrained weights are loaded: others replace them afterwards, or weights do not matter.
    """
    options = dict(options or {})
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    if not fresh:
        for option in PRETRAINED_OPTIONS.get(name.partition(":")[0], ("pretrained",)):
            options.pop(option, None)

    def make() -> nn.Module:
        try:
            if isinstance(model, str):
                return _build(model, num_classes, in_channels, options, size)
            return call_factory(model, num_classes, in_channels, size, **options)
        except InputError:
            raise
        except Exception as error:  # a factory of the user's may raise anything
            if options.get("pretrained") and not isinstance(error, TypeError):  # that is a wrong option
                raise InputError(
                    f"The pretrained weights of {name} could not be had ({type(error).__name__}): is the hub "
                    "within reach? Weights in a safetensors file are loaded with `init`."
                ) from error
            raise InputError(f"{name} could not be built: {type(error).__name__}: {reason(error)}") from error

    return make


def _build(
    name: str, num_classes: int, in_channels: int, options: dict[str, Any], size: tuple[int, int] | None
) -> nn.Module:
    source, _, rest = name.partition(":")
    if source == "timm":
        return from_timm(rest, num_classes, in_channels, size, **options)
    if source == "torchvision":
        return from_torchvision(rest, num_classes, in_channels, size, **options)
    if name.startswith("<"):
        raise InputError(f"The network was the Python object {name}, which only its own script can build.")
    if ":" in name:
        return call_factory(import_factory(name), num_classes, in_channels, size, **options)
    ours = networks()
    if name not in ours:
        raise unknown_model(name, ours)
    return ours[name](num_classes=num_classes, in_channels=in_channels, **options)
