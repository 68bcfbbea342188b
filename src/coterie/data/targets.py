"""Targets: class numbers or probabilities, checked before a method computes with them, and counted."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .device import accumulator_dtype

TaskName = Literal["single_label", "multi_label"]
"""Whether each image has one label or any number of them."""


def checked_targets(
    targets: Tensor, batch: int, classes: int | None, values: bool = True, several: bool = False
) -> Tensor:
    """Return targets (B,) or (B, C), or refuse them; `values` reads them as well.

    Probabilities of fewer than `classes` classes are those of the first; the others have 0. With `several` labels
    an image, each probability is from 0 to 1 by itself, and zeros and ones of any type are taken.
    """
    if targets.dim() not in (1, 2) or len(targets) != batch:
        width = "C" if classes is None else classes
        raise InputError(
            f"Targets must be class numbers ({batch},) or probabilities ({batch}, {width}), not of shape "
            f"{tuple(targets.shape)}."
        )
    if targets.dim() == 1:
        return _checked_classes(targets, classes, values)
    if several and not targets.is_floating_point():
        targets = targets.float()
    if not targets.is_floating_point():
        raise InputError(f"Probabilities must be floating-point numbers, not {targets.dtype}.")
    if classes is not None and targets.shape[1] > classes:
        raise InputError(f"Targets have probabilities of {targets.shape[1]} classes, but there are {classes}.")
    if values and several:
        if not ((targets >= 0) & (targets <= 1)).all():
            raise InputError("Targets of several labels an image must be from 0 to 1, one for each class.")
    elif values:
        if not (targets >= 0).all():
            raise InputError("Targets must not be negative or NaN: they are probabilities.")
        tolerance = 1e-2 if targets.dtype in (torch.float16, torch.bfloat16) else 1e-4
        if (targets.to(accumulator_dtype(targets.device)).sum(1) - 1).abs().max() > tolerance:
            raise InputError("The probabilities of each target must sum to 1.")
    missing = 0 if classes is None else classes - targets.shape[1]
    return torch.nn.functional.pad(targets, (0, missing)) if missing else targets


def _checked_classes(labels: Tensor, classes: int | None, values: bool) -> Tensor:
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"Class numbers must be integers, not {labels.dtype}.")
    if values and classes is not None and len(labels):
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise InputError(f"Class numbers must be from 0 to {classes - 1}, not {low} to {high}.")
    return labels.long()


def probabilities(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return targets as probabilities (B, C): class numbers become one-hot rows."""
    if targets.dim() == 2:
        return targets.to(dtype)
    # Not F.one_hot: it reads the labels to check them, which waits for a GPU.
    one_hot = torch.zeros(len(targets), classes, dtype=dtype, device=targets.device)
    return one_hot.scatter_(1, targets.unsqueeze(1), 1.0)


def class_counts(labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return how many images have each class, by their labels (N,) or by zeros and ones (N, C)."""
    return labels.sum(0, dtype=np.int64) if labels.ndim == 2 else np.bincount(labels, minlength=classes)
