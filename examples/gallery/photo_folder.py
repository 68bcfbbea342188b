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
    """Write ROOT/{train,test}/CLASS/*.jpg, from two parts of each region that share no pixel."""
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    random = np.random.default_rng(0)
    for name, (photograph, left, top, right, bottom) in REGIONS.items():
        border = left + (right - left) * 7 // 10
        for split, start, end, count in (("train", left, border, 60), ("test", border, right, 30)):
            folder = Path(root, split, name)
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                x, y = random.integers(start, end - SIDE + 1), random.integers(top, bottom - SIDE + 1)
                piece = photographs[photograph].crop((x, y, x + SIDE, y + SIDE))
                piece.save(folder / f"{number:02}.jpg", quality=95)
