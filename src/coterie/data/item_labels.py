"""The labels of a `torch.utils.data.Dataset`, wherever it keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import TensorDataset

from ..errors import InputError
from .subset import Labels

MOST_CLASSES = 1_000_000
"""A larger label is the key of something, not the number of a class."""


def read_labels(items: Any, source: str, several: bool = False) -> Labels:
    """Return the labels from `targets` or `labels`, as torchvision's sets have them, or else from every item.

    They are class numbers or, where there may be `several` labels an image, also zeros and ones for each class.
    """
    labels = next((getattr(items, name) for name in ("targets", "labels") if hasattr(items, name)), None)
    if isinstance(items, TensorDataset):
        labels = items.tensors[1]
    if labels is None or len(labels) != len(items) or getattr(items, "target_transform", None) is not None:
        labels = []
        for i in range(len(items)):
            try:
                labels.append(items[i][1])
            except Exception as error:  # of the user's code
                raise InputError(f"{source}: item {i} gives no label ({type(error).__name__}: {error}).") from None
    if not len(labels):
        raise InputError(f"{source} is empty.")
    labels = labels.tolist() if isinstance(labels, (Tensor, np.ndarray)) else labels
    if several and np.ndim(labels[0]) == 1:
        return _zeros_and_ones(labels, source)
    return np.array([_class_number(label, source) for label in labels], np.int64)


def _zeros_and_ones(labels: Any, source: str) -> Labels:
    try:
        hot = np.array([np.asarray(label) for label in labels])
        if hot.ndim == 2 and np.isin(hot, (0, 1)).all():
            return hot.astype(np.uint8)
    except (TypeError, ValueError):  # rows of different lengths, text
        pass
    raise InputError(f"{source} has several labels an image: they must be zeros and ones, one for each class.")


def _class_number(label: Any, source: str) -> int:
    try:
        number = int(label)
        if number == label and abs(number) < MOST_CLASSES:
            return number
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a name, a vector
        pass
    several = "" if np.ndim(label) != 1 else "; zeros and ones for each class are for `task` multi_label"
    raise InputError(f"{source} has the label {repr(label)[:60]}: labels must be the numbers of classes{several}.")
