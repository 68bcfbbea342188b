"""A recipe becomes a job: its options as the flags of `coterie train`, without those that are defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..config.options import PARTS, from_options
from ..config.recipe import RUNTIME_OPTIONS, Recipe
from ..config.specs import own_defaults
from ..data import data_sets
from ..methods import available
from .job import Job

Flags = dict[str, Any]
WHERE_COMPUTED = RUNTIME_OPTIONS - {"data.root"}
"""Options that are no part of a job's name. Its data is: another folder is another run."""
ALWAYS = ("method", "model", "data", "epochs")


def job_of(recipe: Recipe) -> Job:
    """Return the job that trains what the recipe says. Options that are Python objects stand in it as labels."""
    flags, usual = _flags(recipe.config), dict(_default_flags())
    for part in PARTS:
        if flags[part] != usual[part]:  # another class: none of its options goes without saying
            usual = {name: value for name, value in usual.items() if not name.startswith(f"{part}.")}
    usual |= {f"method.{name}": value for name, value in own_defaults(recipe.method_class).items()}
    # What a config leaves out is None, which a default may not be.
    flags = {name: None for name, value in usual.items() if value is not None} | flags
    chosen = {name: value for name, value in flags.items() if name in ALWAYS or usual.get(name) != value}
    chosen.pop("seed", None)
    runtime = {name: value for name, value in chosen.items() if name in WHERE_COMPUTED}
    return Job({k: v for k, v in chosen.items() if k not in runtime}, recipe.seed, runtime=runtime)


def _flags(config: Mapping[str, Any]) -> Flags:
    """Return a recipe's config by flags; `method.temperature` is an argument of the class that `method` names."""
    flags: Flags = {}
    for name, value in config.items():
        if name in PARTS and isinstance(value, Mapping):
            flags[name] = _short_name(value["class_path"])
            flags |= {f"{name}.{option}": each for option, each in value.get("init_args", {}).items()}
        else:
            flags[name] = value
    return flags


def _short_name(path: str) -> str:
    """Return `PCL` or `digits` for one of our own methods and data sets, and any other import path as it is."""
    own = {**available(), **data_sets()}
    name = path.rpartition(".")[2]
    return name if name in own and path in (f"coterie.{name}", f"{own[name].__module__}.{name}") else path


@cache
def _default_flags() -> Flags:
    return _flags(from_options({"method": "Baseline"}).config)
