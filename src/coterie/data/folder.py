"""`folder`: your own images, a folder per class; ImageNet is that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..errors import InputError
from .augment import resized_crop
from .base import Indices, Split
from .images import centre, decode, pixels, resized
from .index import Index, scan
from .streaming import Loaded

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
                f"{self.root} needs train/ and val/ (or test/), each with a folder of images per class."
            )
        if len(present) == 3 and (self.val_fraction or self.val_limit):
            option = "val_fraction" if self.val_fraction else "val_limit"
            raise InputError(f"{self.root} has both val/ and test/: leave --data.{option} away.")
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
        self._warn_unreadable(self.bad)
        self._indices, self._places = indices, places
        self.labels = {split: indices[split].labels[where] for split, where in places.items()}

    def _scan(self, part: str, classes: list[str] | None = None) -> Index:
        index = scan(self.root / part, classes)
        if not len(index.labels):
            raise InputError(f"{self.root / part} holds no image that can be read.")
        return index

    def path(self, split: Split, image: int) -> Path:
        return self._indices[split].path(int(self._places[split][image]))

    @property
    def title(self) -> str:
        return self.root.resolve().name

    def name(self, split: Split, image: int) -> str:
        return str(self.path(split, image))

    def fetch(self, split: Split, image: int) -> Tensor:
        return pixels(self.original(image, split))

    def original(self, image: int, split: Split = "train") -> Image.Image:
        return decode(self.path(split, image))

    def view(self, image: Tensor, numbers: NDArray[np.float64]) -> Tensor:
        if self.augment.crops:
            left, top, right, bottom = resized_crop(image.shape[2], image.shape[1], numbers[:22].tolist())
            view = resized(image[:, top:bottom, left:right], self.size, self.size)
        else:
            view = self.plain(image)
        if self.augment.flips and numbers[22] < 0.5:
            view = view.flip(-1)
        return self.augment(view, float(numbers[23]))

    def plain(self, image: Tensor) -> Tensor:
        return centre(image, self._short, self.size, self.size)

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "resize": self._short}

    @property
    def _short(self) -> int:
        """The shorter side of a test image before its centre is taken."""
        return self.size * 8 // 7
