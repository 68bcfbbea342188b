"""`digits`: 1,797 handwritten digits of 8x8 pixels, shipped with scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from .in_memory import InMemory, Stored

__all__ = ["digits"]


class digits(InMemory):
    """Handwritten digits, 8x8 grey: 600 to train with, 1,197 to test.

    Crop jitter of one pixel, but no flips: a mirrored digit is another digit.
    """

    padding, augments = 1, ("crop",)
    mean, std = (0.3056,), (0.3754,)

    def read(self) -> Stored:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        self.classes = [str(name) for name in bunch.target_names]
        # The file goes writer by writer: a fixed shuffle gives both parts all hands.
        order = np.random.RandomState(0).permutation(len(bunch.images))
        pixels = (bunch.images[order] * (255 / 16)).round().astype(np.uint8)[:, None]
        labels = bunch.target[order].astype(np.int64)
        return pixels[:600], labels[:600], pixels[600:], labels[600:]
