"""Torch's fused optimisers: one kernel for all parameters of a GPU."""

from __future__ import annotations

from inspect import signature

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

FUSED = {"cuda": (SGD, Adam, AdamW), "mps": (SGD, Adam, AdamW)}
"""The optimisers that torch has fused, by device. On a CPU they round otherwise than torch's default, and numbers
stay as they are; Adagrad is fused on CUDA only since some version after our oldest torch."""


def prefer_fused(optimizer: Optimizer, device: torch.device) -> Optimizer:
    """Return the same optimiser with `fused=True`; the given one if torch has none or the user has chosen.

    Whoever sets `fused`, `foreach` or `differentiable` has chosen.
    """
    groups = optimizer.param_groups
    chosen = any(
        group.get("fused") is not None or group.get("foreach") is not None or group.get("differentiable")
        for group in groups
    )
    if chosen or type(optimizer) not in FUSED.get(device.type, ()):
        return optimizer
    parameters = signature(type(optimizer)).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in parameters}
    fused: Optimizer = type(optimizer)([{**g, "fused": True} for g in groups], **{**options, "fused": True})
    return fused
