"""Temperature calibration (Guo et al., 2017): one number that makes a network's probabilities honest."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError


def temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the T > 0 that minimises the likelihood loss of softmax(logits / T), found by golden-section search.

    The loss is convex in 1/T, so unimodal in log T.
    """
    logits = logits.double()

    def loss(log_t: float) -> float:
        return F.cross_entropy(logits / math.exp(log_t), labels).item()

    low, high, golden = math.log(0.01), math.log(100.0), (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    loss_a, loss_b = loss(a), loss(b)
    while high - low > 1e-5:
        if loss_a < loss_b:
            high, b, loss_b = b, a, loss_a
            a = high - golden * (high - low)
            loss_a = loss(a)
        else:
            low, a, loss_a = a, b, loss_b
            b = low + golden * (high - low)
            loss_b = loss(b)
    return math.exp((low + high) / 2)


def halves(count: int) -> tuple[Tensor, Tensor]:
    """Return the held-out images to fit on (every second test image), and the others, to report on."""
    if count < 2:
        raise InputError("Calibration needs held-out images: the test set is too small to be halved.")
    index = torch.arange(count)
    return index[::2], index[1::2]
