"""`folder`: your own images, a folder per class; ImageNet is that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..errors import InputError
from .augment import resized_crop
from .data import Indices, Split
from .images import decode
from .index import Index, scan
from .loaded import Loaded

__all__ = ["folder"]


class folder(Loaded):
    """Images in `train/CLASS/` and `val/CLASS/`, as ImageNet has them, and perhaps in `test/CLASS/`.

    With `test/`, training reports on `val/` and `coterie evaluate` on `test/`; without it `val/` is the test set.
    Training views are random resized crops, flipped; test images are resized to 8/7 of the size and
    their centre is taken (256 and 224).

    Args:
        root: the folder that holds `train/` and `val/`.
        size: width and height of a view.
    """

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

    def __init__(self, root: str = "data", size: int = 224, **options: Any) -> None:
        super().__init__(**options)
        if size < 8:
            raise InputError(f"--data.size must be at least 8 pixels, not {size}.")
        self.root, self.size = Path(root), size
        self.shape = (3, size, size)

    def load(self) -> None:
        present = [split for split in ("train", "val", "test") if (self.root / split).is_dir()]
        if "train" not in present or len(present) == 1:
            raise InputError(
                f"{self.root} needs the folders train/ and val/ (or test/), each with a folder of images per class."
            )
        if len(present) == 3 and self.val_fraction:
            raise InputError(f"{self.root} has both val/ and test/: leave --data.val_fraction away.")
        train = self._scan("train")
        self.classes = train.classes
        counts = np.bincount(train.labels, minlength=len(self.classes))
        if not counts.all():
            empty = self.classes[int(counts.argmin())]
            raise InputError(f"{self.root / 'train' / empty} holds no image that can be read.")
        test = self._scan(present[-1], self.classes)
        chosen, held = self.choose(train.labels)
        indices = {"train": train, "val": train, "test": test}
        places: dict[Split, Indices] = {"train": chosen, "val": held, "test": np.arange(len(test.labels))}
        if len(present) == 3:
            indices["val"] = self._scan("val", self.classes)
            places["val"] = np.arange(len(indices["val"].labels))
        self.bad = {
            str(index.root / name): reason
            for index in {id(index): index for index in indices.values()}.values()
            for name, reason in index.bad.items()
        }
        self._tell(self.bad)
        self._indices, self._places = indices, places
        self.labels = {split: indices[split].labels[where] for split, where in places.items()}

    def _scan(self, part: str, classes: list[str] | None = None) -> Index:
        index = scan(self.root / part, classes)
        if not len(index.labels):
            raise InputError(f"{self.root / part} holds no image that can be read.")
        return index

    def path(self, split: Split, image: int) -> Path:
        return self._indices[split].path(int(self._places[split][image]))

    def name(self, split: Split, image: int) -> str:
        return str(self.path(split, image))

    def fetch(self, split: Split, image: int) -> Image.Image:
        return decode(self.path(split, image))

    def original(self, image: int, split: Split = "train") -> Image.Image:
        return self.fetch(split, image)

    def view(self, image: Image.Image, numbers: NDArray[np.float64]) -> Tensor:
        if self.augment.crops:
            box = resized_crop(*image.size, numbers[:22].tolist())
            view = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        else:
            view = self._centre(image)
        if self.augment.flips and numbers[22] < 0.5:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self.augment(_tensor(view), float(numbers[23]))

    def plain(self, image: Image.Image) -> Tensor:
        return _tensor(self._centre(image))

    def _centre(self, image: Image.Image) -> Image.Image:
        """The shorter side to 8/7 of the size, then the centre; torchvision's roundings."""
        short = self.size * 8 // 7
        width, height = image.size
        if width <= height:
            scaled = (short, max(short, int(short * height / width)))
        else:
            scaled = (max(short, int(short * width / height)), short)
        left, top = round((scaled[0] - self.size) / 2), round((scaled[1] - self.size) / 2)
        image = image.resize(scaled, Image.Resampling.BILINEAR)
        return image.crop((left, top, left + self.size, top + self.size))


def _tensor(image: Image.Image) -> Tensor:
    # Channels stay last in memory: the copy is one run of bytes.
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
