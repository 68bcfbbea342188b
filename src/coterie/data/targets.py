"""Targets: class numbers or probabilities, checked before a method computes with them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError

TOLERANCE = 1e-2
"""How far the sum of an image's probabilities may be from 1: half precision rounds."""


def checked_targets(targets: Tensor, batch: int, classes: int, values: bool = True) -> Tensor:
    """Return targets (B,) or (B, C) as they are, or refuse them; `values` reads the probabilities as well.

    Probabilities of fewer classes than the network has are those of its first classes.
    """
    if targets.dim() not in (1, 2) or len(targets) != batch:
        raise InputError(
            f"Targets must be class numbers ({batch},) or probabilities ({batch}, {classes}), not of shape "
            f"{tuple(targets.shape)}."
        )
    if targets.dim() == 1:
        if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise InputError(f"Class numbers must be integers, not {targets.dtype}.")
        return targets.long()
    if not targets.is_floating_point():
        raise InputError(f"Probabilities must be floating-point numbers, not {targets.dtype}.")
    if targets.shape[1] > classes:
        raise InputError(
            f"Targets have probabilities of {targets.shape[1]} classes, but the network has {classes}."
        )
    if values:
        if not (targets >= 0).all():
            raise InputError("Targets must not be negative: they are probabilities.")
        if (targets.double().sum(1) - 1).abs().max() > TOLERANCE:
            raise InputError("The probabilities of each target must sum to 1.")
    return torch.nn.functional.pad(targets, (0, classes - targets.shape[1]))


def probabilities(targets: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return targets as probabilities (B, C): class numbers become one-hot rows."""
    if targets.dim() == 2:
        return targets.to(dtype)
    # Not F.one_hot: it reads the labels to check them, which waits for a GPU.
    one_hot = torch.zeros(len(targets), classes, dtype=dtype, device=targets.device)
    return one_hot.scatter_(1, targets.unsqueeze(1), 1.0)
