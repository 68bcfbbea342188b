"""Temperature calibration (Guo et al., 2017): one number that makes a network's probabilities honest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import InputError
from ..methods.task import SINGLE_LABEL, Task


def temperature(logits: Tensor, labels: Tensor, task: Task = SINGLE_LABEL) -> float:
    """Return the T > 0 that minimises the likelihood loss of logits / T.

    The loss is convex in 1/T, so unimodal in log T.
    """
    from scipy.optimize import minimize_scalar  # takes a moment to import, and few runs are calibrated

    logits = logits.double()

    def loss(log_t: float) -> float:
        return task.loss(logits / math.exp(log_t), labels).mean().item()

    bounds = math.log(0.01), math.log(100.0)
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-5}).x)


def halves(count: int) -> tuple[Tensor, Tensor]:
    """Return the held-out images to fit on (every second test image), and the others, to report on."""
    if count < 2:
        raise InputError("Calibration needs held-out images: the test set is too small to be halved.")
    index = torch.arange(count)
    return index[::2], index[1::2]
