"""Random images in CIFAR's shape: speed does not depend on what they show, and nothing need be fetched."""

from __future__ import annotations

import numpy as np

from ..data.in_memory import InMemory, Pixels
from ..data.sampler import Indices


class Noise(InMemory):
    """Random pixels and labels, as many as CIFAR-100 has classes.

    Args:
        images: how many there are to train with, and a quarter as many to test.
    """

    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

    def __init__(self, images: int = 1024) -> None:
        super().__init__()
        self.images = images

    def read(self) -> tuple[Pixels, Indices, Pixels, Indices]:
        self.classes = [str(c) for c in range(100)]
        random, test = np.random.default_rng(0), max(2, self.images // 4)
        pixels = random.integers(256, size=(self.images + test, 3, 32, 32), dtype=np.uint8)
        labels = random.integers(100, size=len(pixels))
        return pixels[: self.images], labels[: self.images], pixels[self.images :], labels[self.images :]
