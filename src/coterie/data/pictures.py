"""Pictures of any size: which of them are trained on, and how they become views and test images."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..errors import InputError, note
from .augment import resized_crop
from .batch import SplitName
from .fingerprint import digest
from .images import Unreadable, centre, decode_image, pixels, resized, unreadable_reason
from .sampler import Indices
from .streaming import Streamed
from .subset import Labels, counted_class

LARGEST_SIDE = 4096
"""Of a view, in pixels: a batch of larger ones fits no memory."""
TEST_PART = 5
"""One in this many images of each class is a test image where a set comes without any."""
TEST_STREAM = 20261118
"""Tells the draws of these test images from others."""


class Pictures(Streamed):
    """Pictures that are read when they are needed, in any number of splits.

    Training views are random resized crops, flipped; test images are resized to 8/7 of the size and
    their centre is taken (256 and 224).

    Args:
        size: width and height of a view.
    """

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

    def __init__(self, size: int = 224, **options: Any) -> None:
        super().__init__(**options)
        if size < 8:
            raise InputError(f"`size` must be at least 8 pixels, not {size}.")
        if size > LARGEST_SIDE:
            raise InputError(f"`size` must be at most {LARGEST_SIDE:,} pixels, not {size:,}.")
        self.size = size
        self.shape = (3, size, size)
        self.short = size * 8 // 7
        """The shorter side of a test image before its centre is taken."""
        self._stored: dict[SplitName, Indices] = {}

    @abstractmethod
    def original(self, image: int, split: SplitName = "train") -> Image.Image: ...

    def assign_splits(self, labels: Labels, splits: Mapping[SplitName, Indices], source: Path) -> None:
        """Set the splits from the labels of all stored images and from the images of each split that there is.

        With both `val` and `test`, training reports on `val`; with one of them, that is the test set; with
        neither, a fifth of each class is held out for test.
        """
        train = splits["train"]
        self.check_held_out(splits, source)
        if len(splits) == 1:
            train, test = divide(labels, train, self.classes)
            if not len(test):
                raise InputError(f"{source} has one image of each class: none can be held out for test.")
            note(
                f"{source} has no test images: {len(test):,} of its {len(test) + len(train):,} images, a fifth of "
                "each class, are held out for test, always the same."
            )
        else:
            test = splits["test"] if "test" in splits else splits["val"]
        val = splits["val"] if len(splits) == 3 else None
        self._stored = {"train": train, "val": train if val is None else val, "test": test}
        self.set_splits(labels[train], labels[test], None if val is None else labels[val])

    def check_held_out(self, splits: Collection[SplitName], source: Path) -> None:
        """Refuse to hold images out of the training images where there is a `val` beside `test`."""
        if len(splits) == 3 and (self.subset.val_fraction or self.subset.val_limit):
            option = "val_fraction" if self.subset.val_fraction else "val_limit"
            slash = "/" if source.is_dir() else ""
            raise InputError(f"{source} has both val{slash} and test{slash}: leave `{option}` away.")

    def stored(self, split: SplitName, image: int) -> int:
        """Return where an image of a split stands among all images."""
        return int(self._stored[split][self.positions[split][image]])

    def content(self, split: SplitName, image: int) -> bytes:
        try:
            return self.original(image, split).tobytes()
        except Unreadable:
            return b""

    def fetch(self, split: SplitName, image: int) -> Tensor:
        return pixels(self.original(image, split))

    def crop(self, image: Tensor, numbers: list[float]) -> Tensor:
        left, top, right, bottom = resized_crop(image.shape[2], image.shape[1], numbers)
        return resized(image[:, top:bottom, left:right], self.size, self.size)

    def plain(self, image: Tensor) -> Tensor:
        return centre(image, self.short, self.size, self.size)

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "resize": self.short}


class PictureFiles(Pictures):
    """Pictures that are files.

    `files` is one array of fixed-width bytes, relative to `root`: workers share its pages, which a list of
    strings, whose reference counts are written to, would not allow.

    Args:
        root: the folder that the names of the files start from.
    """

    files: np.ndarray

    def __init__(self, root: str = "data", **options: Any) -> None:
        super().__init__(**options)
        self.root = Path(root)

    def path(self, split: SplitName, image: int) -> Path:
        return self.root / os.fsdecode(bytes(self.files[self.stored(split, image)]))

    def name(self, split: SplitName, image: int) -> str:
        return str(self.path(split, image))

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        return decode_image(self.path(split, image))

    def content(self, split: SplitName, image: int) -> bytes:
        return self.path(split, image).read_bytes()

    def fingerprint(self) -> dict[str, object]:
        """Return that of every set, and a digest of the names and sizes of all files."""
        images = [(split, image) for split, labels in self.labels.items() for image in range(len(labels))]
        with ThreadPoolExecutor(8) as pool:
            sizes = pool.map(lambda image: self.path(*image).stat().st_size, images)
            names = (bytes(self.files[self.stored(*image)]) for image in images)
            files = digest(b"%s %d" % item for item in zip(names, sizes, strict=True))
        return {**super().fingerprint(), "files": files}


def divide(labels: Labels, images: Indices, classes: Sequence[str]) -> tuple[Indices, Indices]:
    """Return the images to train with and a fifth of each class, at least one image, to test with.

    It depends on the labels alone. The only image of a class is trained on. Of several labels, the rarest counts.
    """
    train, test = [], []
    drawn_as = counted_class(labels[images])
    for c in range(len(classes) + 1):  # the last: images without a label
        drawn = np.random.default_rng((TEST_STREAM, c)).permutation(images[drawn_as == c])
        count = max(0, min(max(1, round(len(drawn) / TEST_PART)), len(drawn) - 1))
        test.append(drawn[:count])
        train.append(drawn[count:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def unreadable_reasons(paths: Sequence[Path]) -> list[str]:
    """Return for each file why its header is not that of an image, or an empty string."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(unreadable_reason, paths))


def encode_names(files: Sequence[str]) -> np.ndarray:
    """Return file names as one array of fixed-width bytes."""
    return np.array([os.fsencode(file) for file in files], np.bytes_)
