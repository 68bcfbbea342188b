"""Describe Python objects as config.yaml can hold them: a class path with its arguments."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import coterie

from ..data.mix import Mix
from ..data.wrapped import dataset
from .schedule import Schedule

PLAIN = (bool, int, float, str, type(None))


class Unwritable(Exception):
    """An object that no file can name; the message is its `label`."""


def to_spec(value: Any) -> Any:
    """Return a value as plain ones: numbers, text, lists, or a class path with its arguments."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [to_spec(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_spec(item) for key, item in value.items()}
    if isinstance(value, type):
        return _class_spec(value, {})
    if isinstance(value, functools.partial) and isinstance(value.func, type) and not value.args:
        return _class_spec(value.func, value.keywords)
    if isinstance(value, Mix | Schedule):  # they keep each argument under its name
        arguments = inspect.signature(type(value)).parameters
        return _class_spec(type(value), {name: getattr(value, name) for name in arguments})
    raise Unwritable(label(value))


def describe(value: Any) -> Any:
    """Return the spec of a value, or the label of one that has none."""
    try:
        return to_spec(value)
    except Unwritable as unwritable:
        return str(unwritable)


def model_spec(model: Any) -> str:
    """Return the name of a network: `package.module:factory` for a function or class of a module."""
    if isinstance(model, str):
        return model
    if not _importable(model):
        raise Unwritable(label(model))
    return f"{model.__module__}:{model.__qualname__}"


def label(value: Any) -> str:
    """Return a readable name of an object: `<make_model in train.py>`."""
    if isinstance(value, functools.partial):
        return label(value.func)
    if isinstance(value, dataset) and value.pair is not None:
        return label(value.pair[0])
    named = value if hasattr(value, "__qualname__") else type(value)
    module = sys.modules.get(named.__module__)
    file = getattr(module, "__file__", None)
    source = Path(file).name if named.__module__ == "__main__" and file else named.__module__
    name = named.__qualname__.replace("<locals>.", "").replace("<lambda>", "lambda")
    return f"<{name} in {source}>"


def is_label(value: Any) -> bool:
    """Tell whether a value of a config.yaml is the `label` of an object."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


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


def _class_spec(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a class; missing arguments have the class's own default, not that of a recipe."""
    if not _importable(cls):
        raise Unwritable(label(cls))
    plain = {name: value for name, value in own_defaults(cls).items() if isinstance(value, PLAIN)}
    public = getattr(coterie, cls.__name__, None) is cls
    path = f"coterie.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"
    return {"class_path": path, "init_args": to_spec({**plain, **arguments})}


def _importable(value: Any) -> bool:
    """Tell whether a function or class can be imported by its module and name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module is None or module == "__main__" or "<" in name or "." in name:
        return False
    return getattr(importlib.import_module(module), name, None) is value
