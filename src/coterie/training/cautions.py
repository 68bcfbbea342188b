"""Warn, in one line each, of what makes the numbers of a training mean less than they seem to."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _BatchNorm

from ..config.recipe import Recipe
from ..data import Data
from ..data.targets import class_counts, probabilities
from ..errors import printable, warn
from ..methods import Method
from ..metrics.chance import guessing_error, is_at_chance, random_order_error

SHORTEST_HORIZON = 2.0
"""Steps; below, averaged weights are hardly anything but the last ones."""
FEWEST_STEPS, SMALLEST_BATCH = 20, 8
"""Of an epoch, and of what batch-norm sees at once: below both, its statistics are little but noise."""
FEWEST_IMAGES = 5
"""Of a class to train with."""


def warn_before_training(recipe: Recipe, method: Method, processes: int) -> None:
    """Warn of too short an average, of too small batches for batch-norm, and of classes with few images."""
    steps = recipe.steps_per_epoch
    horizon = float("inf") if method.mean is None or method.mean.beta == 1 else 1 / (1 - method.mean.beta)
    if horizon < SHORTEST_HORIZON:
        warn(
            f"averaged weights look back {horizon:.1f} of {recipe.epochs * steps:,} steps, so that they are "
            "nearly the peers' own: raise --ema_horizon (such as 0.05), or train longer."
        )
    together = recipe.batch // (processes * recipe.accumulate)
    normalised = any(isinstance(module, _BatchNorm) for module in method.net.modules())
    if normalised and steps < FEWEST_STEPS and together < SMALLEST_BATCH:
        warn(
            f"batch-norm sees {together} images at once in {steps} steps an epoch, so that its statistics are "
            "noisy: raise --batch."
        )
    _warn_of_few_images(recipe.data)


def _warn_of_few_images(data: Data) -> None:
    """Warn of classes with few images to train with, and of those with none to be scored on."""
    counts = class_counts(data.labels["train"], len(data.classes))
    few = np.flatnonzero(counts < FEWEST_IMAGES)
    if len(few):
        first = f"the first is '{printable(data.classes[few[0]])}' with {counts[few[0]]}"
        warn(f"{_classes(few)} fewer than {FEWEST_IMAGES} training images, {first}.")
    images = {"test": "test", "val": "held-out"}[data.eval_split]
    absent = np.flatnonzero(class_counts(data.labels[data.eval_split], len(data.classes)) == 0)
    if len(absent):
        first = f"the first is '{printable(data.classes[absent[0]])}'"
        warn(f"{_classes(absent)} no {images} image, which no score shows: {first}.")


def _classes(numbers: NDArray[np.int64]) -> str:
    return "1 class has" if len(numbers) == 1 else f"{len(numbers):,} classes have"


def warn_of_chance(data: Data, record: dict[str, Any]) -> None:
    """Warn where the last record's deployed network is no better than guessing."""
    name, labels = record["deployed"], data.labels[data.eval_split]
    error = record["predictors"][name]["error"]
    if "map" in record["predictors"][name]:
        targets = probabilities(torch.from_numpy(labels), len(data.classes)).numpy()
        chance, deviation = random_order_error(targets)
        if error > chance - 2 * deviation:
            warn(
                f"{name} has a mAP of {100 - error:.2f} % on {len(labels):,} images, which is chance level: a "
                f"random order of them has {100 - chance:.2f} %."
            )
    elif is_at_chance(error, labels):
        warn(
            f"{name} errs on {error:.2f} % of {len(labels):,} images, which is chance level: always naming the "
            f"commonest class errs on {guessing_error(labels):.2f} %."
        )
