"""Give a method the loss that a recipe asks for, and refuse what the method cannot train on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.class_weights import read_class_weights
from ..errors import InputError
from ..methods import Method
from ..methods.cross_entropy import CrossEntropy
from ..methods.trial import softmax_losses, uses_cross_entropy

if TYPE_CHECKING:
    from .recipe import Recipe


def set_loss(recipe: Recipe, method: Method, fresh: bool = True) -> None:
    """Set the task, label smoothing and class weights; a method that is not trained needs the task alone."""
    name, several = recipe.method_class.__name__, recipe.several_labels
    if several:
        recipe.resolved["task"] = "multi_label"
        if not method.soft_targets:
            raise InputError(
                f"{name} compares the classes of images and has no form for several labels an image: choose "
                "another `method`."
            )
    if not fresh:
        method.cross_entropy = CrossEntropy(task="multi_label" if several else "single_label")
        return
    weights = read_class_weights(recipe.class_weights, recipe.data)
    if weights is not None:
        recipe.resolved["class_weights"] = weights
    method.cross_entropy = CrossEntropy(
        recipe.label_smoothing, weights, "multi_label" if several else "single_label"
    )
    if several:
        _check_losses(method, recipe)
    elif not uses_cross_entropy(method, recipe.data):
        raise InputError(
            f"{name} does not call `self.cross_entropy`, so that `label_smoothing` and `class_weights` would have "
            "no effect: leave them out."
        )


def _check_losses(method: Method, recipe: Recipe) -> None:
    """Refuse a method that computes a loss of its own, for one label an image."""
    name = recipe.method_class.__name__
    if not uses_cross_entropy(method, recipe.data):
        raise InputError(
            f"{name} does not call `self.cross_entropy`, so that it cannot train on several labels an image."
        )
    if own := softmax_losses(method, recipe.data):
        raise InputError(
            f"{name} computes a loss of one label an image by itself ({own[0]}): for several labels write it with "
            "`self.task`."
        )


def check_mixing(recipe: Recipe, method: Method) -> None:
    """Refuse mixing where the method or the batch does not allow it."""
    if recipe.mix is None:
        return
    if not method.soft_targets:
        name = recipe.method_class.__name__
        raise InputError(f"{name} compares classes and cannot train on mixed images: leave out `mix`.")
    if min(recipe.batch, recipe.data.train_size) < 2:
        name = type(recipe.mix).__name__
        raise InputError(f"`mix` {name} needs at least two images in a batch: raise `batch`.")
