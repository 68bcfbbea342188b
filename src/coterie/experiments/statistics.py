"""Statistics over seeds: mean and deviation, and paired differences with their confidence interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.stats import t as student_t

from ..report.runs import Spread


@dataclass(frozen=True)
class Difference:
    """The mean of a difference between runs of the same seed, and half the width of its confidence interval."""

    mean: float
    half_width: float | None
    """None for a single pair, which says nothing about the spread."""
    count: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def text(self) -> str:
        """With the number of pairs in brackets."""
        interval = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:+.2f}{interval} ({self.count})"


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], confidence: float = 0.95) -> Difference | None:
    """Of two numbers by seed: ours - theirs over the common seeds, Student's t with n - 1 degrees of freedom."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    spread = Spread.of(ours[seed] - theirs[seed] for seed in seeds)
    half = None
    if spread.std is not None:
        half = float(student_t.ppf((1 + confidence) / 2, spread.count - 1)) * spread.std / math.sqrt(spread.count)
    return Difference(spread.mean, half, spread.count)
