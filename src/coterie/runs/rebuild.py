"""Rebuild the recipe and method of a run directory, or its student alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from ..config.options import from_file
from ..config.peers import factories
from ..config.recipe import Recipe
from ..errors import InputError, reason
from ..files import REMEDY, read_json
from ..methods import Method
from ..peers.build import make_network
from .directory import RunDirectory
from .information import check_data


def restored(directory: Path, objects: Mapping[str, Any] = {}) -> tuple[Recipe, Method, int]:
    """Return a run's recipe with its data loaded, its method with the trained weights, its finished epochs.

    `objects` are the options that were Python objects, which the directory cannot hold.
    """
    recipe, run = from_file(directory / "config.yaml", objects), RunDirectory(directory)
    try:
        recipe.data.load()
    except InputError as error:
        raise InputError(f"{error} (If its data has moved, change data.root in {run.config}.)") from None
    method = recipe.build(fresh=False)
    check_data(directory, recipe, ("classes", "shape"))  # else logits would get the names of other classes
    return recipe, method, run.restore(method)


def load_student(directory: Path, objects: Mapping[str, Any] = {}) -> nn.Module:
    """Return the network of a finished run's student.safetensors, in evaluation mode; no data is needed."""
    needed = ("model", "model_options", "peers")
    recipe, run = from_file(directory / "config.yaml", objects, needed), RunDirectory(directory)
    if not run.student.is_file():
        raise InputError(f"{directory} has no {run.student.name} yet: continue its training to the end.")
    data = read_json(directory / "data.json")
    classes, shape = data.get("classes"), data.get("shape")
    if not isinstance(classes, list) or not isinstance(shape, list):
        raise InputError(f"{directory / 'data.json'} does not name classes and shape{REMEDY}")
    makers = factories(recipe, len(classes), tuple(shape), fresh=False)
    student = make_network(makers[0])  # of peers of different architectures, the first is deployed
    try:
        student.load_state_dict(safetensors.torch.load_file(run.student))
    except RuntimeError as error:
        raise InputError(f"{run.student} does not fit the network: {reason(error)}") from None
    return student.eval()
