"""`fashion_mnist` from its official idx files, gzipped or not, checksummed."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .base import Indices
from .in_memory import InMemory, Pixels, halved

__all__ = ["fashion_mnist"]

PACKAGE = "dataset-fashion-mnist"
PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package of this name puts the files."""


class fashion_mnist(InMemory):
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28x28 grey, in 10 classes.

    Args:
        root: the folder that holds the four idx files, itself or in `fashion-mnist` or `FashionMNIST/raw` below
            it; if they are not there, those of Debian's package dataset-fashion-mnist are read.
        size: 14 averages every 2x2 pixels to one (a mean that ends in .5 goes up), and halves the crop's border
            of 4 pixels.
    """

    mean, std = (0.2860,), (0.3530,)
    names = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    # Of the content, not of the .gz file: Debian's have the official data behind another gzip header.
    files: dict[str, tuple[tuple[int, ...], str]] = {
        "train-images-idx3-ubyte": ((60000, 28, 28), "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        "train-labels-idx1-ubyte": ((60000,), "9018921c3c673c538a1fc5bad174d6f9"),
        "t10k-images-idx3-ubyte": ((10000, 28, 28), "8181f5470baa50b63fa0f6fddb340f0a"),
        "t10k-labels-idx1-ubyte": ((10000,), "15d484375f8d13e6eb1aabb0c3f46965"),
    }
    """The shape of each file's values and the MD5 of its content."""

    def __init__(self, root: str = "data", size: Literal[14, 28] = 28, **options: Any) -> None:
        super().__init__(**options)
        self.root, self.size = Path(root), size
        self.padding = size // 7

    def read(self) -> tuple[Pixels, Indices, Pixels, Indices]:
        folder = self.locate()
        self.classes = list(self.names)
        train, train_labels, test, test_labels = (
            read_idx(folder / name, shape, md5) for name, (shape, md5) in self.files.items()
        )
        return (
            self._resized(train),
            train_labels.astype(np.int64),
            self._resized(test),
            test_labels.astype(np.int64),
        )

    def locate(self) -> Path:
        """Return the folder of the files, or refuse in a sentence that says how to get them."""
        first = next(iter(self.files))
        folders = [self.root, self.root / "fashion-mnist", self.root / "FashionMNIST" / "raw", PACKAGE_FOLDER]
        for folder in folders:
            if (folder / first).is_file() or (folder / f"{first}.gz").is_file():
                return folder
        raise InputError(f"fashion_mnist is neither under {self.root} nor in {PACKAGE_FOLDER}: {self.ways()}.")

    @classmethod
    def ways(cls) -> str:
        """Say how to get the files."""
        return (
            f"`apt-get install {PACKAGE}` on Debian, or put {', '.join(cls.files)}, each with or "
            "without .gz, into a folder DIR and train with --data.root DIR"
        )

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "filter": "bilinear" if self.size == 28 else "box"}

    def _resized(self, values: Pixels) -> Pixels:
        pixels = values[:, None]
        return pixels if self.size == 28 else halved(pixels)


def read_idx(file: Path, shape: tuple[int, ...], md5: str) -> Pixels:
    """Return the bytes that an idx file, or the same with .gz, holds in this shape.

    A plain file is mapped, not read: processes share its pages.
    """
    header = np.array([0x0800 + len(shape), *shape], ">u4").tobytes()
    size = len(header) + math.prod(shape)
    file = file if file.is_file() else file.with_name(f"{file.name}.gz")
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                content = np.frombuffer(stream.read(size + 1), np.uint8)  # a small file can unpack to a huge one
        elif file.stat().st_size == size:
            content = np.memmap(file, np.uint8, "r")
        else:
            content = np.fromfile(file, np.uint8, size + 1)
    except FileNotFoundError:
        raise InputError(f"{file.with_suffix('')} is missing, with and without .gz: get all four files.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file} cannot be read ({reason}): get it again.") from None
    if content[: len(header)].tobytes() != header:
        raise InputError(
            f"{file} does not begin as an idx file of {' x '.join(map(str, shape))} bytes does: get it again."
        )
    if len(content) != size:
        more = "more" if len(content) > size else "fewer"
        raise InputError(f"{file} holds {more} than the {size:,} bytes of the released file: get it again.")
    if hashlib.md5(content.data, usedforsecurity=False).hexdigest() != md5:
        raise InputError(f"{file} is not the released file: the MD5 of its content differs; get it again.")
    return content[len(header) :].reshape(shape)
