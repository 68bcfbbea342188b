"""Class weights: a word, a list or a file becomes one weight for each class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .base import Data
from .targets import class_counts


def read_class_weights(source: Sequence[float] | str | None, data: Data) -> list[float] | None:
    """Return the weight of each class of a loaded data set, or None.

    'balanced' gives n / (C n_c), of n training images, C classes and n_c images of class c; with several labels an
    image, n is the number of all labels. Any other text is
    numbers in the order of the classes, separated by commas, spaces or lines, or names a file of them.
    """
    if source is None:
        return None
    if source == "balanced":
        return _balanced_weights(data)
    weights = _parse(source) if isinstance(source, str) else [float(weight) for weight in source]
    if len(weights) != len(data.classes):
        raise InputError(f"`class_weights` has {len(weights)} weights, but there are {len(data.classes)} classes.")
    return weights


def _balanced_weights(data: Data) -> list[float]:
    counts = class_counts(data.labels["train"], len(data.classes))
    if not counts.all():
        empty = data.classes[int(counts.argmin())]
        raise InputError(
            f"`class_weights` balanced: class '{empty}' has no training images; give a list of weights instead."
        )
    return (counts.sum() / (len(counts) * counts)).tolist()


def _parse(source: str) -> list[float]:
    text, name, file = source, "`class_weights`", Path(source)
    if file.exists() or not re.fullmatch(r"[-+.\d\s,e]+", source):  # else 1,2.5,1
        name = f"`class_weights`: {file}"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise InputError(
                "`class_weights` is 'balanced', a list such as [1, 2.5], or a file of numbers; "
                f"{file} cannot be read."
            ) from None
    try:
        return [float(word) for word in re.split(r"[\s,]+", text.strip().strip("[]")) if word]
    except ValueError:
        raise InputError(f"{name} must hold numbers alone, one for each class.") from None
