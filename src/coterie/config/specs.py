"""Describe Python objects as config.yaml can hold them: plain values, class paths with arguments, or labels."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coterie

from ..data.mix import Mix
from ..data.wrapped import dataset
from .schedule import Schedule

PLAIN = (bool, int, float, str, type(None))
LARGEST = 10_000
"""Numbers of an array that are written out, such as class weights."""


def to_spec(value: Any) -> Any:
    """Return what stands for a value in config.yaml.

    That is numbers, text, lists, or a class path with its arguments. What no file can hold has a label in its
    place: `<make_model in train.py>`.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic) and value.size <= LARGEST:
        return value.tolist()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Path | torch.device):
        return str(value)
    if isinstance(value, list | tuple):
        return [to_spec(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_spec(item) for key, item in value.items()}
    if isinstance(value, type):
        return class_spec(value, {})
    if isinstance(value, functools.partial) and not value.args:
        return class_spec(value.func, value.keywords)
    if isinstance(value, Mix | Schedule):  # they keep each argument under its name
        arguments = inspect.signature(type(value)).parameters
        return class_spec(type(value), {name: getattr(value, name) for name in arguments})
    return label(value)


def model_spec(model: Any) -> str:
    """Return the name that stands for a network: `package.module:factory` for a function or class of a module."""
    if isinstance(model, str):
        return model
    return f"{model.__module__}:{model.__qualname__}" if _importable(model) else label(model)


def label(value: Any) -> str:
    """Name an object for people: `<make_model in train.py>`."""
    if isinstance(value, functools.partial):
        return label(value.func)
    if isinstance(value, dataset) and value.pair is not None:
        return f"<{value.title}>"
    named = value if hasattr(value, "__qualname__") else type(value)
    module = sys.modules.get(named.__module__)
    file = getattr(module, "__file__", None)
    place = Path(file).name if named.__module__ == "__main__" and file else named.__module__
    name = named.__qualname__.replace("<locals>.", "").replace("<lambda>", "lambda")
    return f"<{name} in {place}>"


def labels_in(spec: Any) -> list[str]:
    """Return the labels of objects in a value of a config.yaml; none where a file can hold all of it."""
    if isinstance(spec, Mapping | list):
        return [
            name for part in (spec.values() if isinstance(spec, Mapping) else spec) for name in labels_in(part)
        ]
    return [spec] if isinstance(spec, str) and spec.startswith("<") and spec.endswith(">") else []


def own_defaults(cls: type) -> dict[str, Any]:
    """Return the defaults of a class's parameters, with those of the bases that it passes options on to."""
    defaults: dict[str, Any] = {}
    for base in inspect.getmro(cls):
        if "__init__" not in vars(base) or base is object:
            continue
        parameters = list(inspect.signature(base).parameters.values())
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty} | defaults
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return defaults


def class_spec(cls: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a class; what is not given is the class's own default, whatever a recipe's default is."""
    path = label(cls)
    if isinstance(cls, type) and _importable(cls):
        public = getattr(coterie, cls.__name__, None) is cls
        path = f"coterie.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"
    defaults = own_defaults(cls) if isinstance(cls, type) else {}
    plain = {name: value for name, value in defaults.items() if isinstance(value, PLAIN)}
    return {"class_path": path, "init_args": to_spec({**plain, **arguments})}


def import_class(path: str) -> Any:
    """Import the class of a dotted path, as jsonargparse writes it."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _importable(value: Any) -> bool:
    """Tell whether a function or class is found again under its module and name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module is None or module == "__main__" or "<" in name or "." in name:
        return False
    return getattr(importlib.import_module(module), name, None) is value
