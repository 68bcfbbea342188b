"""Statistics over seeds: mean and deviation, and paired differences with their confidence interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

NOTHING = "–"
"""Stands where there is no number."""
PAIRED = (
    "Differences are paired over the seeds that both have (in brackets, how many), ± half their 95 % confidence "
    "interval (Student's t), and bold where it leaves out zero."
)
"""How a table's differences are to be read."""


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (n - 1) and range of one number over the seeds that have it."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread:
        return cls(tuple(v for v in values if v is not None and math.isfinite(v)))

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return fmean(self.values) if self.values else math.nan

    @property
    def std(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    def text(self, digits: int = 2) -> str:
        if not self.values:
            return NOTHING
        mean = f"{self.mean:.{digits}f}"
        return mean if self.std is None else f"{mean} ± {self.std:.{digits}f}"


@dataclass(frozen=True)
class Difference:
    """The mean of a difference between runs of the same seed, and half the width of its confidence interval."""

    mean: float
    half_width: float | None
    """None for fewer than two pairs, which say nothing about the spread."""
    count: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def text(self) -> str:
        """With the number of pairs in brackets."""
        interval = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:+.2f}{interval} ({self.count})"


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float], confidence: float = 0.95) -> Difference | None:
    """Of two numbers by seed: ours - theirs over the common seeds, Student's t with n - 1 degrees of freedom."""
    seeds = [seed for seed in ours if seed in theirs]
    spread = Spread.of(ours[seed] - theirs[seed] for seed in seeds)
    if not spread.count:
        return None
    half = None
    if spread.std is not None:
        half = float(stdtrit(spread.count - 1, (1 + confidence) / 2)) * spread.std / math.sqrt(spread.count)
    return Difference(spread.mean, half, spread.count)
