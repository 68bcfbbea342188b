"""Real photographs that every environment has: pieces of the two that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

CLASSES = ("china", "flower")


def small_photographs(count: int) -> NDArray[np.uint8]:
    """Return pieces of both, scaled to CIFAR's (count, 3, 32, 32)."""
    random = np.random.default_rng(0)
    wholes = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    pieces = []
    for number in range(count):
        left, top = random.integers(0, 200, 2).tolist()
        piece = wholes[number % 2].crop((left, top, left + 200, top + 200)).resize((32, 32))
        pieces.append(np.asarray(piece).transpose(2, 0, 1))
    return np.stack(pieces)


def photographs(root: Path, train: int, val: int) -> Path:
    """Write `root`/{train,val}/CLASS/N.jpg: this many pieces of 160 to 240 pixels a side, of every shape."""
    random = np.random.default_rng(0)
    for name, pixels in zip(CLASSES, load_sample_images().images, strict=True):
        whole = Image.fromarray(pixels)
        for split, count in (("train", train), ("val", val)):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                width, height = random.integers(160, 240, 2).tolist()
                left, top = (int(random.integers(side)) for side in (whole.width - width, whole.height - height))
                piece = whole.crop((left, top, left + width, top + height))
                piece.save(folder / f"{number:03}.jpg", quality=90)
    return root
