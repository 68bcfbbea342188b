"""Turn a name into a network.

Every function in an `__all__` of this folder is a name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import InputError, reason, unknown
from .external import from_timm, from_torchvision, from_user

PRETRAINED_OPTIONS = {"timm": ("pretrained", "checkpoint_path"), "torchvision": ("pretrained", "weights")}
"""Options that load initial weights; of other networks, `pretrained`."""

FORMS = "timm:NAME, torchvision:NAME, package.module:factory, file.py:factory"


def networks() -> dict[str, Callable[..., nn.Module]]:
    """Return our own networks by name; a new file in this folder needs no registration."""
    factories: dict[str, Callable[..., nn.Module]] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        factories |= {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return factories


def factory(
    name: str,
    num_classes: int,
    in_channels: int,
    options: dict[str, Any] | None = None,
    size: tuple[int, int] | None = None,
    fresh: bool = True,
) -> Callable[[], nn.Module]:
    """Return a function that builds the named network for these classes, channels and image size.

    Without `fresh` no pretrained weights are loaded: others replace them afterwards, or weights do not matter.
    """
    options = dict(options or {})
    if not fresh:
        for option in PRETRAINED_OPTIONS.get(name.partition(":")[0], ("pretrained",)):
            options.pop(option, None)

    def make() -> nn.Module:
        try:
            return _build(name, num_classes, in_channels, options, size)
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
    if ":" in name:
        return from_user(name, num_classes, in_channels, size, **options)
    ours = networks()
    if name not in ours:
        raise InputError(f"{unknown('model', name, ours)} Others are named {FORMS}.")
    return ours[name](num_classes=num_classes, in_channels=in_channels, **options)
