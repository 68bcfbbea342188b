"""Options: flags, plain values or a run's config.yaml become a Recipe."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace

from ..data import Data
from ..errors import InputError
from .parsing import full_name, import_class, parse_object
from .recipe import Recipe

DEFAULTS = {
    "data": {"class_path": "digits"},
    "optimizer": {
        "class_path": "torch.optim.SGD",
        "init_args": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    },
    "schedule": {"class_path": "Steps"},
}


def parser(prog: str = "coterie train") -> ArgumentParser:
    """Build the parser of a recipe's options, from the signatures of all that it names."""
    description = (Recipe.__doc__ or "").split("\n")[0]
    parser = ArgumentParser(prog=prog, exit_on_error=False, description=description)
    parser.add_argument("--config", action="config", help="YAML file of options; flags after it override it.")
    parser.add_class_arguments(Recipe, None)
    parser.set_defaults(DEFAULTS)
    return parser


def from_namespace(parser: ArgumentParser, config: Namespace) -> Recipe:
    """Build the recipe of parsed options."""
    names = [f.name for f in fields(Recipe)]
    try:
        objects = parser.instantiate(_as_data(config))
    except ValueError as error:  # where two types are tried, our own sentence is the cause
        raise error.__cause__ if isinstance(error.__cause__, InputError) else error from None
    recipe = Recipe(**{name: objects[name] for name in names})
    plain = yaml.safe_load(parser.dump(config, skip_validation=True))
    recipe.config = {name: plain.get(name) for name in names} | {"model": recipe.model}
    recipe.method_class = import_class(config.method.class_path)
    recipe.method_options = config.method.get("init_args", Namespace()).as_dict()
    if inspect.isabstract(recipe.method_class):
        raise InputError(f"{recipe.method_class.__name__} has no `forward`: name a method that is complete.")
    return recipe


def _as_data(config: Namespace) -> Namespace:
    """Return the same with a `Dataset` class, if one was named, inside our `dataset`, which makes it twice."""
    source = config.data.class_path
    if issubclass(import_class(source), Data):
        return config
    options = {"source": source, "options": config.data.get("init_args", Namespace()).as_dict()}
    adapted = config.clone()
    adapted.data = Namespace(class_path="coterie.data.wrapped.dataset", init_args=Namespace(**options))
    return adapted


def from_options(options: dict[str, Any]) -> Recipe:
    """Build a recipe of plain values, as a YAML file holds them: {'method': 'PCL', 'epochs': 30, ...}."""
    recipe_parser, options = parser(), dict(options)
    method = options.get("method")
    if isinstance(method, str):
        options["method"] = full_name(method)
    elif isinstance(method, dict) and "class_path" in method:
        options["method"] = {**method, "class_path": full_name(method["class_path"])}
    return from_namespace(recipe_parser, parse_object(recipe_parser, options))


def from_file(file: Path) -> Recipe:
    """Read the recipe in a run directory's config.yaml, with the devices that are here.

    Relative paths are those of the command that trained it. `coterie reproduce` runs its commands in the
    directory of the runs: what is not found from here is looked for from there.
    """
    try:
        options = yaml.safe_load(file.read_text())
    except OSError:
        raise InputError(f"{file.parent} is not a run directory: it has no {file.name}.") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        options = None
    if not isinstance(options, dict):
        raise InputError(f"{file} is damaged: it does not hold the options of a run.")
    for part, name in (("data", "root"), ("method", "teacher")):
        spec = options.get(part)
        arguments = spec.get("init_args") if isinstance(spec, dict) else None
        path = arguments.get(name) if isinstance(arguments, dict) else None
        if arguments and isinstance(path, str) and not Path(path).exists():
            beside_runs = file.resolve().parent.parent / path
            arguments[name] = str(beside_runs) if beside_runs.exists() else path
    return from_options({**options, "device": "auto"})
