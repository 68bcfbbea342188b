"""`folder`: your own images, a folder per class; ImageNet is that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from ..errors import InputError
from .augment import resized_crop
from .batch import SplitName
from .images import SUFFIXES, centre, decode_image, pixels, resized, unreadable_reason
from .sampler import Indices
from .streaming import Streamed

__all__ = ["folder"]


class folder(Streamed):
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
            raise InputError(f"`size` must be at least 8 pixels, not {size}.")
        self.root, self.size = Path(root), size
        self.shape = (3, size, size)
        self.short = size * 8 // 7
        """The shorter side of a test image before its centre is taken."""

    def load(self) -> None:
        splits = [split for split in ("train", "val", "test") if (self.root / split).is_dir()]
        if "train" not in splits or len(splits) == 1:
            raise InputError(
                f"{self.root} needs train/ and val/ (or test/), each with a folder of images per class."
            )
        if len(splits) == 3 and (self.subset.val_fraction or self.subset.val_limit):
            option = "val_fraction" if self.subset.val_fraction else "val_limit"
            raise InputError(f"{self.root} has both val/ and test/: leave `{option}` away.")
        train = index_folder(self.root / "train")
        self.classes = train.classes
        counts = np.bincount(train.labels, minlength=len(self.classes))
        if not counts.all():
            raise InputError(
                f"{self.root / 'train' / self.classes[int(counts.argmin())]} holds no image that can be read."
            )
        test = index_folder(self.root / splits[-1], self.classes)
        val = index_folder(self.root / "val", self.classes) if len(splits) == 3 else None
        self._indices: dict[SplitName, FolderIndex] = {"train": train, "val": val or train, "test": test}
        self.bad_files = {file: why for index in self._indices.values() for file, why in index.bad.items()}
        self.report_unreadable(self.bad_files)
        self.set_splits(train.labels, test.labels, None if val is None else val.labels)

    def path(self, split: SplitName, image: int) -> Path:
        return self._indices[split].path(int(self.positions[split][image]))

    @property
    def title(self) -> str:
        return self.root.resolve().name

    def name(self, split: SplitName, image: int) -> str:
        return str(self.path(split, image))

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        return decode_image(self.path(split, image))

    def fetch(self, split: SplitName, image: int) -> Tensor:
        return pixels(self.original(image, split))

    def crop(self, image: Tensor, numbers: list[float]) -> Tensor:
        left, top, right, bottom = resized_crop(image.shape[2], image.shape[1], numbers)
        return resized(image[:, top:bottom, left:right], self.size, self.size)

    def plain(self, image: Tensor) -> Tensor:
        return centre(image, self.short, self.size, self.size)

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "resize": self.short}


@dataclass
class FolderIndex:
    """The images of one split in the order of their names, and the files that are no images with the reasons.

    `files` is one array of fixed-width bytes, relative to `root`: workers share its pages, which a list of
    strings, whose reference counts are written to, would not allow.
    """

    root: Path
    classes: list[str]
    files: np.ndarray
    labels: Indices
    bad: dict[str, str]

    def path(self, image: int) -> Path:
        return self.root / os.fsdecode(bytes(self.files[image]))


def index_folder(root: Path, classes: list[str] | None = None) -> FolderIndex:
    """Index a folder per class and check all headers. `classes`: of the training split, for other splits."""
    try:
        folders = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise InputError(f"{root} cannot be read ({(error.strerror or '').lower()}).") from None
    if not folders:
        raise InputError(f"{root} has no folders: it needs a folder of images per class.")
    classes = folders if classes is None else classes
    if unexpected := set(folders) - set(classes):
        raise InputError(f"{root} has a class '{min(unexpected)}' that the training images do not have.")
    numbers = {name: number for number, name in enumerate(classes)}
    files = [(file, numbers[name]) for name in folders for file in _image_files(root, name)]
    with ThreadPoolExecutor(8) as pool:
        reasons = list(pool.map(lambda item: unreadable_reason(root / item[0]), files))
    bad = {str(root / file): reason for (file, _), reason in zip(files, reasons, strict=True) if reason}
    images = [item for item, reason in zip(files, reasons, strict=True) if not reason]
    if not images:
        raise InputError(f"{root} holds no image that can be read.")
    names = np.array([os.fsencode(file) for file, _ in images], np.bytes_)
    labels = np.array([label for _, label in images], np.int64)
    return FolderIndex(root, classes, names, labels, bad)


def _image_files(root: Path, folder: str) -> Iterator[str]:
    """Yield the image files at any depth below a class's folder, relative to `root`."""

    def fail(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read ({(error.strerror or '').lower()}).")

    visited = {os.path.realpath(root)}
    for path, folders, names in os.walk(root / folder, onerror=fail, followlinks=True):
        if (real := os.path.realpath(path)) in visited:  # links to folders are followed, but not in a circle
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        relative = Path(path).relative_to(root).as_posix()
        for name in sorted(names):
            if name[0] != "." and Path(name).suffix.lower() in SUFFIXES:
                yield f"{relative}/{name}"
