"""Turn flags, plain values, Python objects or a run's config.yaml into a Recipe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from torch.utils.data import DataLoader, Dataset

from ..data import Data
from ..data.wrapped import dataset
from ..errors import InputError, unknown
from ..files import read_yaml
from ..names import PARTS as PARTS
from ..trust import check_run
from .parsing import instantiate, parse_object
from .recipe import DEFAULT_DATA, Recipe
from .short_names import data_by_path, full_name, own_optimizer
from .specs import import_class, labels_in, model_spec, to_spec

NOT_OPTIONS = {"config", "objects"}
"""Fields of a recipe that follow from its options."""
OPTIONS = [field.name for field in fields(Recipe) if field.name not in NOT_OPTIONS]


def parser(prog: str = "coterie train") -> ArgumentParser:
    """Build the parser of a recipe's options, from the signatures of all that it names."""
    description = (Recipe.__doc__ or "").split("\n")[0]
    parser = ArgumentParser(prog=prog, exit_on_error=False, allow_abbrev=False, description=description)
    parser.add_argument("--config", action="config", help="YAML file of options; flags after it override it.")
    parser.add_class_arguments(Recipe, None, skip=NOT_OPTIONS)
    defaults = Recipe()
    parser.set_defaults({name: to_spec(getattr(defaults, name)) for name in ("optimizer", "schedule")})
    parser.set_defaults({"data": {"class_path": DEFAULT_DATA}})
    return parser


def from_namespace(
    parser: ArgumentParser, config: Namespace, objects: Mapping[str, Any] = {}, labels: Mapping[str, Any] = {}
) -> Recipe:
    """Build the recipe of parsed options.

    Args:
        parser: the parser of these options.
        config: the parsed options.
        objects: Python objects to use instead of what was parsed under their names.
        labels: the labels in config.yaml of those objects that no file can hold.
    """
    values = instantiate(parser, _as_data(config))
    options = {name: values[name] for name in OPTIONS}
    options["method"] = partial(import_class(config.method.class_path), **values.method.keywords)
    options |= objects
    if "model" in labels:
        options["model"] = labels["model"]
    parsed = config.as_dict()
    written = {**{name: _written(to_spec(parsed[name])) for name in OPTIONS}, **labels}
    return Recipe(**options, config=written, objects={name: objects[name] for name in labels})


def _written(spec: Any) -> Any:
    """Return a spec without the arguments that are None: config.yaml holds the options that are set."""
    if not isinstance(spec, dict) or "init_args" not in spec:
        return spec
    return {**spec, "init_args": {name: value for name, value in spec["init_args"].items() if value is not None}}


def _as_data(config: Namespace) -> Namespace:
    """Wrap the `Dataset` class that the options name, if they name one, in our `dataset` of two splits."""
    source = config.data.class_path
    if issubclass(import_class(source), Data):
        return config
    options = {"source": source, "options": config.data.get("init_args", Namespace()).as_dict()}
    adapted = config.clone()
    adapted.data = Namespace(class_path="coterie.data.wrapped.dataset", init_args=Namespace(**options))
    return adapted


def from_options(options: Mapping[str, Any]) -> Recipe:
    """Build a recipe from options as in a YAML file or a Python call: {'method': 'PCL', 'epochs': 30, ...}.

    Instead of a name, an option may be a Python object: a class, a partial, a factory or module for `model`, a
    `Data` or a pair of data sets for `data`.
    """
    plain: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    for name, value in options.items():
        if name == "data":
            value = _as_data_set(value)
        if name == "optimizer" and isinstance(value, str | Mapping):
            value = own_optimizer(value)
        spec = model_spec(value) if name == "model" else to_spec(value)
        if labels_in(spec):
            objects[name], labels[name] = value, spec
        else:
            plain[name] = spec
    plain["method"] = _named(plain.get("method", "PCL"))
    recipe_parser = parser()
    return from_namespace(recipe_parser, parse_object(recipe_parser, plain), objects, labels)


def with_options(part: str, value: Any, options: Mapping[str, Any] | None) -> Any:
    """Add the options of a class to its name or to the class itself, such as 'PCL' or coterie.PCL."""
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"`{part}_options` must be a mapping such as {{'a': 1}}, not {type(options).__name__}.")
    if not options:
        return value
    if isinstance(value, str | Path):
        return {"class_path": str(value), "init_args": dict(options)}
    if isinstance(value, type | partial):
        return partial(value, **options)
    if part == "data" and isinstance(value, list | tuple):
        return {"pair": value, "init_args": dict(options)}
    raise InputError(f"`{part}_options` are for a name or a class: give `{part}` as one of these.")


def _as_data_set(data: Any) -> Any:
    """Return a pair of data sets as a `Data`, and a directory or table as the spec of its set."""
    if isinstance(data, Mapping) and isinstance(data.get("pair"), list | tuple):
        return dataset.of(*data["pair"], **data["init_args"])
    if isinstance(data, list | tuple) and len(data) == 2:
        return dataset.of(*data)
    if isinstance(data, Dataset | DataLoader):
        raise InputError("`data` needs two data sets: a pair (training set, test set).")
    name = data.get("class_path") if isinstance(data, Mapping) else data
    if not isinstance(name, str | Path | type | partial | Data):
        kinds = "a name, a path, a pair (training set, test set) or a coterie.Data"
        raise InputError(f"`data` is {kinds}, not {type(data).__name__}.")
    return data_by_path(data)


def _named(method: Any) -> Any:
    """Return the spec of a method under its full name."""
    if isinstance(method, str):
        return full_name(method)
    if not isinstance(method, Mapping):
        raise InputError(f"`method` must be a name, a class of methods, or a partial of one, not {method!r}.")
    return {**method, "class_path": full_name(method["class_path"])} if "class_path" in method else method


def read_options(file: Path) -> dict[str, Any]:
    """Return the options in a run directory's config.yaml as they stand there; nothing is imported."""
    try:
        options = read_yaml(file)
    except OSError:
        raise InputError(f"{file.parent} is not a run directory: it has no {file.name}.") from None
    if not isinstance(options, dict):
        raise InputError(f"{file} is damaged: it does not hold the options of a run.")
    return options


def from_file(file: Path, objects: Mapping[str, Any] = {}, needed: Collection[str] = OPTIONS) -> Recipe:
    """Read the recipe in a run directory's config.yaml, with a device of this machine.

    Relative paths are resolved from the working directory and, failing that, from the parent of the run directory,
    where `coterie reproduce` runs its commands. A run that names code of its own must be the user's or trusted.

    Args:
        file: the config.yaml.
        objects: the options for which the file has only a label.
        needed: the options that matter; others that are labels get their default.
    """
    options = read_options(file)
    for name in options:
        if name not in OPTIONS:
            raise unknown(f"option in {file}", str(name), OPTIONS)
    check_run(file.parent, options)
    labels = {name: value for name, value in options.items() if labels_in(value) and name not in objects}
    if missing := [name for name in labels if name in needed]:
        names, objects_again = ", ".join(f"`{name}`" for name in missing), ", ".join(f"{n}=..." for n in missing)
        raise InputError(
            f"{names} of {file.parent} cannot be read from a file, as a Python object was given "
            f"({', '.join(labels_in([labels[name] for name in missing]))}): give it again in "
            f"coterie.load('{file.parent}', {objects_again})."
        )
    options = {name: value for name, value in options.items() if name not in labels}
    for part, name in (("data", "root"), ("method", "teacher")):
        spec = options.get(part)
        arguments = spec.get("init_args") if isinstance(spec, dict) else None
        path = arguments.get(name) if isinstance(arguments, dict) else None
        if arguments and isinstance(path, str) and not Path(path).exists():
            beside_runs = file.resolve().parent.parent / path
            arguments[name] = str(beside_runs) if beside_runs.exists() else path
    return from_options({**options, **objects, "device": "auto"})
