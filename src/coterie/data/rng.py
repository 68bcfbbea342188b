"""Random numbers as a function of (seed, epoch, image, view), and code of others run from a seed of its own.

Whatever the number of workers, processes or resumes, an image is augmented alike. The generator of `draws` is
SplitMix64 (Steele, Lea & Flood, 2014) applied to the mixed-in counters.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draws(seed: int, epoch: int, images: NDArray[np.int64], views: int, count: int) -> NDArray[np.float64]:
    """Return `count` numbers in [0, 1) for each view of each image: (views, images, count)."""
    state = _mix(np.full((1, 1, 1), seed, dtype=np.uint64))
    for counter in (
        np.full((1, 1, 1), epoch),
        images.reshape(1, -1, 1),
        np.arange(views).reshape(-1, 1, 1),
        np.arange(count).reshape(1, 1, -1),
    ):
        state = _mix(state ^ _mix(counter.astype(np.uint64)))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = x + _GOLDEN
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@contextmanager
def seed_all(seed: int) -> Iterator[None]:
    """Seed torch, NumPy and Python inside and restore their states afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
