"""Describe a trained predictor as its weight files and exports do, and a run as reports do."""

from __future__ import annotations

import re
from typing import Any

from ..config.recipe import Recipe
from ..errors import printable
from ..methods import Method
from ..methods.base import method_summary
from ..metrics.evaluate import fit_thresholds
from ..models.metadata import Metadata


def describe_run(recipe: Recipe) -> dict[str, Any]:
    """Return what only the code of data and method can say, for a report that does not import it."""
    return {"data": printable(recipe.data.title), "method": printable(method_summary(recipe.method_class))}


def describe_predictor(recipe: Recipe, method: Method, name: str, epochs: int) -> Metadata:
    """Return the metadata of a predictor, without scores; `epochs` is the number of epochs it was trained.

    With several labels an image, thresholds are fitted on the images that the run held out.
    """
    thresholds = fit_thresholds(method, recipe.data, next(method.parameters()).device)
    ensemble = None
    if name.endswith("ensemble"):
        split = method.net.split
        ensemble = {
            "method": recipe.method_class.__name__,
            "options": recipe.config["method"].get("init_args", {}),
            "peers": method.net.size,
            "cut": split.cut if split else None,
        }
    selected = {}
    if method.selected is not None:
        by = f"by the error of {method.selected} on held-out images"
        selected = {"selected": f"after epoch {epochs} of {recipe.epochs}, {by}"}
    # Peers may be of different architectures: the file names one of them, or all.
    models = recipe.models
    if len(models) > 1 and (number := re.fullmatch(r"(?:peer|mean)(\d+)", name)):
        models = [models[int(number[1]) - 1]]
    return Metadata(
        predictor=name,
        model={"name": ",".join(models), "options": recipe.model_options},
        input=recipe.data.preprocessing(),
        classes=[printable(label.strip()) for label in recipe.data.classes],  # lines of a file, or folders
        ensemble=ensemble,
        task=method.task.name,
        thresholds=None if thresholds is None else thresholds[name],
        thresholds_from=None if thresholds is None else f"{recipe.data.eval_size:,} held-out images",
        provenance={
            "method": recipe.method_class.__name__,
            "data": recipe.data.title,
            "epochs": epochs,
            "seed": recipe.seed,
            **selected,
        },
    )
