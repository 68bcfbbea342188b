"""`fashion_mnist` from its official idx files, gzipped or not, checksummed."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .in_memory import InMemory, Pixels, Stored

__all__ = ["fashion_mnist"]

PACKAGE_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package dataset-fashion-mnist puts the files."""


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
    files = {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    }
    """The MD5 of each file's content."""
    how_to_get = (
        f"`apt-get install dataset-fashion-mnist` on Debian, or put {', '.join(files)}, each with or without .gz, "
        "into a folder and name it with `root`"
    )

    def __init__(self, root: str = "data", size: Literal[14, 28] = 28, **options: Any) -> None:
        super().__init__(**options)
        self.root, self.halves, self.padding = Path(root), size == 14, size // 7

    def read(self) -> Stored:
        folder = self.locate()
        self.classes = list(self.names)
        train, labels, test, test_labels = (_read_idx(folder / name, md5) for name, md5 in self.files.items())
        return train[:, None], labels.astype(np.int64), test[:, None], test_labels.astype(np.int64)

    def locate(self) -> Path:
        """Return the folder of the files, or refuse in a sentence that says how to get them."""
        first = next(iter(self.files))
        folders = [self.root, self.root / "fashion-mnist", self.root / "FashionMNIST" / "raw", PACKAGE_FOLDER]
        for folder in folders:
            if (folder / first).is_file() or (folder / f"{first}.gz").is_file():
                return folder
        raise InputError(f"fashion_mnist is neither under {self.root} nor in {PACKAGE_FOLDER}: {self.how_to_get}.")


def _read_idx(file: Path, md5: str) -> Pixels:
    """Return the bytes of an idx file, or the same with .gz, in their shape.

    A plain file is mapped, not read: processes share its pages.
    """
    file = file if file.is_file() else file.with_name(f"{file.name}.gz")
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                content = np.frombuffer(stream.read(1 << 26), np.uint8)  # a small file can unpack to a huge one
        else:
            content = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.empty(0, np.uint8)
    except FileNotFoundError:
        raise InputError(f"{file.with_suffix('')} is missing, with and without .gz: get all four files.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file} cannot be read ({reason}): get it again.") from None
    if hashlib.md5(content.data, usedforsecurity=False).hexdigest() != md5:
        raise InputError(f"{file} is not the released file: the MD5 of its content differs; get it again.")
    header = 4 + 4 * int(content[3])  # of a magic number, whose last byte counts the dimensions, and their sizes
    return content[header:].reshape(content[4:header].view(">u4").tolist())
