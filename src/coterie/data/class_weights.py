"""Class weights: a word, a list or a file becomes one weight for each class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from .base import Data


def read_class_weights(source: Sequence[float] | str | None, data: Data) -> list[float] | None:
    """Return the weight of each class of a loaded data set, or None.

    'balanced' gives n / (C n_c), of n training images, C classes and n_c images of class c. Any other text names a
    file of numbers in the order of the classes, separated by commas, spaces or lines.
    """
    if source is None:
        return None
    if source == "balanced":
        return balanced_weights(data)
    weights = _read(source) if isinstance(source, str) else [float(weight) for weight in source]
    if len(weights) != len(data.classes):
        raise InputError(f"--class_weights has {len(weights)} weights, but there are {len(data.classes)} classes.")
    return weights


def balanced_weights(data: Data) -> list[float]:
    """Return n / (C n_c) of each class of the training images."""
    counts = np.bincount(data.labels["train"], minlength=len(data.classes))
    if not counts.all():
        empty = data.classes[int(counts.argmin())]
        raise InputError(
            f"--class_weights balanced: class '{empty}' has no training images; give a list of weights instead."
        )
    weights: list[float] = (counts.sum() / (len(counts) * counts)).tolist()
    return weights


def _read(source: str) -> list[float]:
    file = Path(source)
    if re.fullmatch(r"[-+.\d\s,e]+", source) and not file.exists():  # 1,2.5,1
        return _numbers(source, "--class_weights")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise InputError(
            f"--class_weights is 'balanced', a list such as [1, 2.5], or a file of numbers; {file} cannot be read."
        ) from None
    return _numbers(text, f"--class_weights: {file}")


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(word) for word in re.split(r"[\s,]+", text.strip().strip("[]")) if word]
    except ValueError:
        raise InputError(f"{name} must hold numbers alone, one for each class.") from None
