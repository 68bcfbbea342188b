"""Write a folder of photographs, in place of your own: pieces of the two that come with scikit-learn."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

REGIONS = {  # photograph, left, top, right, bottom
    "sky": (0, 330, 0, 640, 130),
    "water": (0, 345, 232, 545, 290),
    "tower": (0, 100, 110, 320, 340),
    "trees": (0, 350, 320, 560, 427),
    "petals": (1, 215, 127, 400, 317),
    "leaves": (1, 0, 60, 160, 427),
}
SIDE = 40
"""Pixels of a piece's side."""


def write_photos(root: str) -> None:
    """Write ROOT/{train,test}/CLASS/*.jpg: a third of each region's columns is for test, no pixel in both."""
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    random = np.random.default_rng(0)
    for name, (photograph, left, top, right, bottom) in REGIONS.items():
        columns = range(left, right - SIDE + 1, SIDE)
        test = columns[1::3]
        for split, lefts, count in (("train", sorted({*columns} - {*test}), 60), ("test", list(test), 30)):
            folder = Path(root, split, name)
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                x, y = lefts[number % len(lefts)], int(random.integers(top, bottom - SIDE + 1))
                piece = photographs[photograph].crop((x, y, x + SIDE, y + SIDE))
                piece.save(folder / f"{number:02}.jpg", quality=95)
