"""A run directory becomes its recipe, and its method with the trained weights."""

from __future__ import annotations

from pathlib import Path

from ..config.options import from_file
from ..config.recipe import Recipe
from ..errors import InputError
from ..methods import Method
from .directory import Run


def restored(directory: Path) -> tuple[Recipe, Method, int]:
    """A trained run's recipe with its data loaded, its method with the trained weights, its finished epochs."""
    recipe, run = from_file(directory / "config.yaml"), Run(directory)
    try:
        recipe.data.load()
    except InputError as error:
        raise InputError(f"{error} (If its data has moved, change data.root in {run.config}.)") from None
    method = recipe.build(fresh=False)
    run.same_data(recipe, ("classes", "shape"))  # else its logits would be given the names of other classes
    return recipe, method, run.restore(method)
