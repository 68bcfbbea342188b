"""Learning-rate schedules as functions of progress: fractions of the training, whatever its length."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Schedule:
    """A factor on the learning rate for each progress in [0, 1)."""

    def __call__(self, progress: float) -> float:
        raise NotImplementedError


class Steps(Schedule):
    """Multiply by `factor` at each of these fractions of the training (the paper: 150 and 225 of 300).

    Args:
        at: the fractions at which the rate drops.
        factor: what it is multiplied with.
    """

    def __init__(self, at: Sequence[float] = (0.5, 0.75), factor: float = 0.1) -> None:
        self.at, self.factor = at, factor

    def __call__(self, progress: float) -> float:
        # A fraction such as 225/300 of an epoch count must not miss its step by rounding.
        return float(self.factor ** sum(progress >= drop - 1e-9 for drop in self.at))


class Cosine(Schedule):
    """Half a cosine from 1 to `floor`.

    Args:
        floor: the factor at the end.
    """

    def __init__(self, floor: float = 0.0) -> None:
        self.floor = floor

    def __call__(self, progress: float) -> float:
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))


def rate(schedule: Schedule, step: int, steps: int, warmup: float) -> float:
    """The factor for step 0, 1, ...: a linear warm-up over the first fraction, and the schedule."""
    warm = warmup * steps
    return schedule(step / steps) * min(1.0, (step + 1) / warm if warm > 0 else 1.0)
