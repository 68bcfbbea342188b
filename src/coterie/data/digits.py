"""`digits`: 1,797 handwritten digits of 8x8 pixels, shipped with scikit-learn: no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .in_memory import InMemory, Stored

__all__ = ["digits"]

FILE = "datasets/data/digits.csv.gz"
"""Where scikit-learn keeps the digits: 64 pixels and the label in each line."""


class digits(InMemory):
    """Handwritten digits, 8x8 grey: 600 to train with, 1,197 to test.

    Crop jitter of one pixel, but no flips: a mirrored digit is another digit.
    """

    padding, augments = 1, ("crop",)
    mean, std = (0.3056,), (0.3754,)

    def read(self) -> Stored:
        table = read_table()
        self.classes = [str(label) for label in range(10)]
        # The file goes writer by writer: a fixed shuffle gives both parts all hands.
        table = table[np.random.RandomState(0).permutation(len(table))]
        pixels = (table[:, :64].reshape(-1, 1, 8, 8) * (255 / 16)).round().astype(np.uint8)
        labels = table[:, 64].astype(np.int64)
        return pixels[:600], labels[:600], pixels[600:], labels[600:]


def read_table() -> np.ndarray:
    """Return the digits from their file: importing scikit-learn takes as long as importing torch."""
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder) / FILE).is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits  # another version may keep the file elsewhere

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
