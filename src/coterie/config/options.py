"""Turn flags, plain values, Python objects or a run's config.yaml into a Recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace
from torch.utils.data import Dataset

from ..data import Data, find_by_path
from ..data.wrapped import dataset
from ..errors import InputError
from .parsing import full_name, import_class, parse_object
from .recipe import DEFAULT_DATA, Recipe
from .specs import Unwritable, is_label, model_spec, to_spec

NOT_OPTIONS = {"config", "objects"}
"""Fields of a recipe that follow from its options."""
OPTIONS = [field.name for field in fields(Recipe) if field.name not in NOT_OPTIONS]
PARTS = ("method", "data", "optimizer", "schedule", "mix")
"""Options that name a class with options of its own."""


def parser(prog: str = "coterie train") -> ArgumentParser:
    """Build the parser of a recipe's options, from the signatures of all that it names."""
    description = (Recipe.__doc__ or "").split("\n")[0]
    parser = ArgumentParser(prog=prog, exit_on_error=False, description=description)
    parser.add_argument("--config", action="config", help="YAML file of options; flags after it override it.")
    parser.add_class_arguments(Recipe, None, skip=NOT_OPTIONS)
    defaults = Recipe()
    parser.set_defaults({name: to_spec(getattr(defaults, name)) for name in ("optimizer", "schedule")})
    parser.set_defaults({"data": {"class_path": DEFAULT_DATA}})
    return parser


def from_namespace(
    parser: ArgumentParser, config: Namespace, objects: Mapping[str, Any] = {}, labels: Mapping[str, str] = {}
) -> Recipe:
    """Build the recipe of parsed options.

    Args:
        parser: that parsed them.
        config: the parsed options.
        objects: Python objects to use instead of what was parsed under their names.
        labels: those of them that no file can hold, by how config.yaml names them.
    """
    try:
        values = parser.instantiate(_as_data(config))
    except ValueError as error:  # where two types are tried, our own sentence is the cause
        raise error.__cause__ if isinstance(error.__cause__, InputError) else error from None
    options = {name: values[name] for name in OPTIONS}
    options["method"] = partial(import_class(config.method.class_path), **values.method.keywords)
    options |= objects
    if "model" in labels:
        options["model"] = labels["model"]
    parsed = config.as_dict()
    written = {**{name: _written(to_spec(parsed[name])) for name in OPTIONS}, **labels}
    return Recipe(**options, config=written, objects={name: objects[name] for name in labels})


def _written(spec: Any) -> Any:
    """Return a spec without the arguments that are None: config.yaml holds what was asked for."""
    if not isinstance(spec, dict) or "init_args" not in spec:
        return spec
    return {**spec, "init_args": {name: value for name, value in spec["init_args"].items() if value is not None}}


def _as_data(config: Namespace) -> Namespace:
    """Return the same with a `Dataset` class, if one was named, inside our `dataset`, which makes it twice."""
    source = config.data.class_path
    if issubclass(import_class(source), Data):
        return config
    options = {"source": source, "options": config.data.get("init_args", Namespace()).as_dict()}
    adapted = config.clone()
    adapted.data = Namespace(class_path="coterie.data.wrapped.dataset", init_args=Namespace(**options))
    return adapted


def from_options(options: Mapping[str, Any]) -> Recipe:
    """Build a recipe of options as a YAML file or a Python call gives them: {'method': 'PCL', 'epochs': 30, ...}.

    Where config.yaml allows a name, a Python object may stand: a class, a partial, a factory or module for
    `model`, a `Data` or a pair of data sets for `data`.
    """
    plain: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for name, value in options.items():
        if name == "data":
            value = _as_data_set(value)
        try:
            plain[name] = model_spec(value) if name == "model" else to_spec(value)
        except Unwritable as unwritable:
            objects[name], labels[name] = value, str(unwritable)
    plain["method"] = _named(plain.get("method", "PCL"))
    recipe_parser = parser()
    return from_namespace(recipe_parser, parse_object(recipe_parser, plain), objects, labels)


def with_options(part: str, value: Any, options: Mapping[str, Any] | None) -> Any:
    """Return what names a class, such as 'PCL' or coterie.PCL, with options of its own."""
    if not options:
        return value
    if isinstance(value, str | Path):
        return {"class_path": str(value), "init_args": dict(options)}
    if isinstance(value, type | partial):
        return partial(value, **options)
    raise InputError(f"`{part}_options` are for a name or a class: give `{part}` as one of these.")


def _as_data_set(data: Any) -> Any:
    """Return a pair of data sets as a `Data`, and a directory or table as the spec of its set."""
    if isinstance(data, tuple) and len(data) == 2:
        return dataset.of(*data)
    if isinstance(data, Dataset):
        raise InputError("`data` needs two data sets: a pair (training set, test set).")
    name, options = (data.get("class_path"), data.get("init_args")) if isinstance(data, Mapping) else (data, None)
    by_path = find_by_path(str(name)) if isinstance(name, str | Path) else None
    if by_path:
        return {"class_path": by_path[0], "init_args": {**by_path[1], **(options or {})}}
    return data


def _named(method: Any) -> Any:
    """Return the spec of a method under its full name."""
    if isinstance(method, str):
        return full_name(method)
    return {**method, "class_path": full_name(method["class_path"])} if "class_path" in method else method


def from_file(file: Path, objects: Mapping[str, Any] | None = None) -> Recipe:
    """Read the recipe in a run directory's config.yaml, with the devices that are here.

    `objects` are the options that the file can only name by a label. Relative paths are those of the command
    that trained it. `coterie reproduce` runs its commands in the directory of the runs: what is not found from
    here is looked for from there.
    """
    objects = dict(objects or {})
    try:
        options = yaml.safe_load(file.read_text())
    except OSError:
        raise InputError(f"{file.parent} is not a run directory: it has no {file.name}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        options = None
    if not isinstance(options, dict):
        raise InputError(f"{file} is damaged: it does not hold the options of a run.")
    for name, value in options.items():
        if is_label(value) and name not in objects:
            raise InputError(
                f"`{name}` of {file.parent} was the Python object {value}, which no file holds: "
                f"use coterie.load('{file.parent}', {name}=...) in its script."
            )
    for part, name in (("data", "root"), ("method", "teacher")):
        spec = options.get(part)
        arguments = spec.get("init_args") if isinstance(spec, dict) else None
        path = arguments.get(name) if isinstance(arguments, dict) else None
        if arguments and isinstance(path, str) and not Path(path).exists():
            beside_runs = file.resolve().parent.parent / path
            arguments[name] = str(beside_runs) if beside_runs.exists() else path
    return from_options({**options, **objects, "device": "auto"})
