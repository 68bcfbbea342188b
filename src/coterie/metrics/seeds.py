"""Statistics over seeds: mean and deviation, paired differences, the exact sign-flip test, Holm's method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

NOTHING = "–"
"""Stands where there is no number."""
PAIRED = (
    "Differences are paired over the seeds that both have (in brackets, how many), ± half their 95 % confidence "
    "interval (Student's t). Bold: a clear difference: three seeds or more, and zero outside the interval."
)
"""How a table's differences are to be read."""
FEWEST_SEEDS = 3
"""With fewer, no difference is called clear: two seeds hardly say anything about the spread."""
TOLERANCE = 1e-9
"""Two differences closer than this are tied: errors are whole images, their means are rounded."""


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
        """Whether it is clear: over three seeds or more, and the interval excludes zero."""
        enough = self.count >= FEWEST_SEEDS
        return enough and self.half_width is not None and abs(self.mean) > self.half_width

    @property
    def amount(self) -> str:
        """Without the number of pairs."""
        interval = "" if self.half_width is None else f" ± {self.half_width:.2f}"
        return f"{self.mean:+.2f}{interval}"

    def text(self) -> str:
        """With the number of pairs in brackets."""
        return f"{self.amount} ({self.count})"


def paired(ours: Mapping[Any, float], theirs: Mapping[Any, float], confidence: float = 0.95) -> Difference | None:
    """Average ours - theirs over the common seeds; the interval is Student's t with n - 1 degrees of freedom."""
    spread = Spread(tuple(paired_differences(ours, theirs)))
    if not spread.count:
        return None
    half = None
    if spread.std is not None:
        half = student_t(spread.count - 1, (1 + confidence) / 2) * spread.std / math.sqrt(spread.count)
    return Difference(spread.mean, half, spread.count)


def student_t(freedom: int, probability: float) -> float:
    """Return the quantile of Student's t distribution with these degrees of freedom."""
    from scipy.special import stdtrit  # takes a moment to import, and a training has no use for it

    return float(stdtrit(freedom, probability))


def paired_differences(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> list[float]:
    """Return ours - theirs for each common seed, without those that are no finite numbers."""
    return list(Spread.of(ours[seed] - theirs[seed] for seed in ours if seed in theirs).values)


def seeds_needed(differences: Sequence[float], most: int = 50) -> int | None:
    """Return the fewest seeds that make a difference clear, if mean and spread stay as in these differences.

    The smallest n of at least three with t(n - 1, 0.975) s / sqrt(n) < |mean|; None where that is more than
    `most`, or for fewer than two differences.
    """
    spread = Spread(tuple(differences))
    if spread.std is None:
        return None
    for count in range(FEWEST_SEEDS, most + 1):
        if student_t(count - 1, 0.975) * spread.std / math.sqrt(count) < abs(spread.mean):
            return count
    return None


def seeds_won(differences: Sequence[float]) -> int:
    """Count the differences below zero; a tie is not won."""
    return sum(difference < -TOLERANCE for difference in differences)


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Compute the two-sided p value of the exact paired sign-flip test.

    If two rows are alike, each seed's difference is as likely to have the other sign. The p value is the share of
    all 2^n sign patterns whose |mean| is at least the observed one, ties included. None without differences.
    """
    if not differences:
        return None
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= abs(sum(differences)) - TOLERANCE))


def holm_adjusted(p_values: Mapping[str, float], family: int) -> dict[str, float]:
    """Adjust p values by Holm's step-down method for a family of this many comparisons.

    The k-th smallest is multiplied by family - k + 1; none is adjusted below a smaller one, nor above 1. While
    comparisons of the family have no p value yet, this is at least what it will be with them.
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (family - rank) * p_values[name]))
        adjusted[name] = largest
    return adjusted
