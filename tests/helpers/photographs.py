"""Real photographs that every environment has: pieces of the two that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

CLASSES = ("china", "flower")


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
