"""Seconds as ratios: subjects take turns with a reference, so that a busy machine slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Run = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """What one subject's turns came to: medians, and the quartiles of its ratio to the reference."""

    seconds: float
    ratio: float
    low: float
    high: float
    turns: int

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "seconds": self.seconds,
            "ratio": self.ratio,
            "quartiles": [self.low, self.high],
            "turns": self.turns,
        }


def times(seconds: Sequence[float], ratios: Sequence[float]) -> Times:
    """The turns of one subject, summed up."""
    return Times(statistics.median(seconds), statistics.median(ratios), *quartiles(ratios), len(ratios))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Between which half of the values lie; of a single one, that one twice."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def once(run: Run, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, with all that it left a GPU to do."""
    settle()
    started = clock()
    run()
    settle()
    return clock() - started


def in_turns(
    reference: Run,
    subjects: Mapping[str, Run],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Each subject in every round, between two turns of the reference; its ratio is to their mean.

    A first round, which warms up, does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    ratios: dict[str, list[float]] = {name: [] for name in subjects}
    before = once(reference, clock)
    for turn in range(rounds + 1):
        for name, run in subjects.items():
            taken = once(run, clock)
            after = once(reference, clock)
            if turn:
                seconds[name].append(taken)
                ratios[name].append(2 * taken / (before + after))
            before = after
    return {name: times(seconds[name], ratios[name]) for name in subjects}


def settle() -> None:
    """Wait for a GPU that is at work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
