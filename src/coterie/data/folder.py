"""`folder`: your own images, a folder per class; ImageNet is that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .batch import SplitName
from .huggingface import is_saved_set
from .images import SUFFIXES
from .pictures import PictureFiles, encode_names, unreadable_reasons
from .sampler import Indices

__all__ = ["folder"]

SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


class folder(PictureFiles):
    """Images in `train/CLASS/`, `val/CLASS/`, as ImageNet has them, and perhaps `test/CLASS/`; or in `CLASS/`.

    With `test/`, training reports on `val/` and `coterie evaluate` on `test/`; without it `val/` is the test set.
    With `train/` alone, or folders of classes alone, a fifth of each class is held out for test.
    Training views are random resized crops, flipped; test images are resized to 8/7 of the size and
    their centre is taken (256 and 224).

    Args:
        root: the folder that holds `train/` and `val/`, or a folder per class.
        size: width and height of a view.
    """

    def __init__(self, root: str = "data", size: int = 224, **options: Any) -> None:
        super().__init__(root=root, size=size, **options)

    @classmethod
    def options_for_path(cls, path: Path) -> dict[str, Any] | None:
        return {"root": str(path)} if path.is_dir() and not is_saved_set(path) else None

    def load(self) -> None:
        folders: dict[SplitName, Path] = {s: self.root / s for s in SPLITS if (self.root / s).is_dir()}
        if not self.root.is_dir() or (folders and "train" not in folders):
            raise InputError(
                f"{self.root} needs train/ and val/ (or test/), or nothing but a folder of images per class."
            )
        self.check_held_out(folders, self.root)  # before every file is looked at
        indices: dict[SplitName, FolderIndex] = {"train": index_folder(folders.get("train", self.root))}
        self.classes = indices["train"].classes
        counts = np.bincount(indices["train"].labels, minlength=len(self.classes))
        if not counts.all():
            empty = indices["train"].root / self.classes[int(counts.argmin())]
            raise InputError(f"{empty} holds no image that can be read.")
        indices |= {s: index_folder(path, self.classes) for s, path in folders.items() if s != "train"}
        splits: dict[SplitName, Indices] = {}
        first = 0
        for split, index in indices.items():
            splits[split] = np.arange(first, first := first + len(index.labels))
        self.files = np.concatenate([index.files_below(self.root) for index in indices.values()])
        self.bad_files = {file: why for index in indices.values() for file, why in index.bad.items()}
        self.report_unreadable(self.bad_files)
        self.assign_splits(np.concatenate([index.labels for index in indices.values()]), splits, self.root)

    @property
    def title(self) -> str:
        return self.root.resolve().name


@dataclass
class FolderIndex:
    """The images of one split in the order of their names, and the files that are no images with the reasons."""

    root: Path
    classes: list[str]
    files: np.ndarray
    """Their names below `root`, in bytes of fixed width."""
    labels: Indices
    bad: dict[str, str]

    def files_below(self, root: Path) -> np.ndarray:
        """Return the names below a folder that holds ours."""
        prefix = self.root.relative_to(root).as_posix()
        return self.files if prefix == "." else np.char.add(os.fsencode(f"{prefix}/"), self.files)


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
    reasons = unreadable_reasons([root / file for file, _ in files])
    bad = {str(root / file): reason for (file, _), reason in zip(files, reasons, strict=True) if reason}
    images = [item for item, reason in zip(files, reasons, strict=True) if not reason]
    if not images:
        raise InputError(f"{root} holds no image that can be read.")
    labels = np.array([label for _, label in images], np.int64)
    return FolderIndex(root, classes, encode_names([file for file, _ in images]), labels, bad)


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
