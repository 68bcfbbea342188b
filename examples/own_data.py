"""Train on a data set of your own: a `torch.utils.data.Dataset` named by its import path.

    cd examples
    coterie train --data own_data.Shapes --data.count 600 --model resnet8 --epochs 5 --out runs/shapes
    coterie data inspect own_data.Shapes

The class is made twice, with `train=True` and with `train=False`. It gives images and labels and knows nothing
of views: Coterie crops and flips every image once for each peer. What `coterie train` calls `--data.count` is the
parameter `count` below.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw
from torch.utils.data import Dataset


class Shapes(Dataset):
    """Discs, squares and triangles of 32x32 pixels in any colour, drawn when they are asked for.

    Args:
        train: the training images, or the test images.
        count: how many there are.
    """

    classes = ["disc", "square", "triangle"]  # their names, if you like; otherwise 0, 1, 2 ...

    def __init__(self, train: bool = True, count: int = 3000) -> None:
        self.train, self.count = train, count
        self.targets = [i % 3 for i in range(count)]  # spares reading every item to learn its label

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        random = np.random.default_rng((self.train, index))
        paper, ink = (tuple(random.integers(0, 256, 3).tolist()) for _ in range(2))
        image = Image.new("RGB", (32, 32), paper)
        pen, r = ImageDraw.Draw(image), int(random.integers(5, 11))
        x, y = random.integers(r, 32 - r, 2).tolist()
        if self.targets[index] == 0:
            pen.ellipse((x - r, y - r, x + r, y + r), ink)
        elif self.targets[index] == 1:
            pen.rectangle((x - r, y - r, x + r, y + r), ink)
        else:
            pen.polygon(((x, y - r), (x - r, y + r), (x + r, y + r)), ink)
        return image, self.targets[index]
