"""`cifar10` and `cifar100` from their official releases, the binary or the python one, checksummed."""

from __future__ import annotations

import hashlib
import pickle
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..compat import import_torchvision
from ..errors import InputError
from .in_memory import InMemory, Joined, Pixels, Stored
from .sampler import Indices

__all__ = ["cifar10", "cifar100"]

SITE = "https://www.cs.toronto.edu/~kriz/"


class Cifar(InMemory):
    """What CIFAR-10 and CIFAR-100 have in common.

    Args:
        root: the folder that holds the unpacked release, binary or python, or the release's folder itself.
        size: 16 averages every 2x2 pixels to one (a mean that ends in .5 goes up), and halves the crop's border.
    """

    binary: str
    """The binary release's folder."""
    archive: str
    archive_md5: str
    files: dict[str, str]
    """The binary release's files of images with their SHA-1, that of the test set last."""
    names: str
    """The binary release's file of class names."""
    label_bytes: int
    torchvision_name: str
    """The class in torchvision.datasets that knows the files and checksums of the python release."""

    def __init__(self, root: str = "data", size: Literal[16, 32] = 32, **options: Any) -> None:
        super().__init__(**options)
        self.root, self.halves, self.padding = Path(root), size == 16, size // 8

    def read(self) -> Stored:
        for folder in (self.root / self.binary, self.root):
            if (folder / self.names).is_file():
                return self._read_binary(folder)
        release = getattr(import_torchvision("torchvision.datasets"), self.torchvision_name)
        for folder in (self.root / release.base_folder, self.root):
            if (folder / release.meta["filename"]).is_file():
                return self._read_python(folder, release)
        name = type(self).__name__
        raise InputError(
            f"{name} is not under {self.root}: `coterie data {name} --root {self.root}` fetches it, or unpack "
            f"{SITE}{self.archive} there, or point `root` at it."
        )

    def _read_binary(self, folder: Path) -> Stored:
        """Map the files, without reading them: processes share their pages."""
        self.classes = (folder / self.names).read_text(encoding="utf-8", errors="replace").split()
        parts = []
        for name, sha1 in self.files.items():
            check_file(folder / name, "sha1", sha1)
            records = np.memmap(folder / name, np.uint8, "r").reshape(-1, self.label_bytes + 3072)
            labels = records[:, self.label_bytes - 1].astype(np.int64)
            parts.append((records[:, self.label_bytes :].reshape(-1, 3, 32, 32), labels))
        return _join(parts)

    def _read_python(self, folder: Path, release: Any) -> Stored:
        """Unpickle the files; a pickle can run code, so each must have its official checksum before."""

        def unpickle(name: str, md5: str) -> dict[str, Any]:
            check_file(folder / name, "md5", md5)
            return pickle.loads((folder / name).read_bytes(), encoding="latin1")

        self.classes = list(unpickle(release.meta["filename"], release.meta["md5"])[release.meta["key"]])
        parts = []
        for name, md5 in [*release.train_list, *release.test_list]:
            batch = unpickle(name, md5)
            labels = batch["labels"] if "labels" in batch else batch["fine_labels"]
            parts.append((batch["data"].reshape(-1, 3, 32, 32), np.array(labels, np.int64)))
        return _join(parts)


def check_file(file: Path, algorithm: Literal["md5", "sha1"], expected: str) -> None:
    """Refuse a file that is not the released one."""
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, partial(hashlib.new, algorithm, usedforsecurity=False))
    except FileNotFoundError:
        raise InputError(f"{file} is missing: unpack the release again.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): unpack the release again.") from None
    if digest.hexdigest() != expected:
        raise InputError(f"{file} is not the released file: its {algorithm.upper()} differs; fetch it again.")


def _join(files: list[tuple[Pixels, Indices]]) -> Stored:
    """Join the files to the training set but for the last one, the test set."""
    *train, test = files
    pixels, labels = zip(*train, strict=True)
    return pixels[0] if len(pixels) == 1 else Joined(pixels), np.concatenate(labels), *test


class cifar10(Cifar):
    """CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""

    binary, names, label_bytes = "cifar-10-batches-bin", "batches.meta.txt", 1
    archive, archive_md5 = "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"
    files = {
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
    }
    torchvision_name = "CIFAR10"
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class cifar100(Cifar):
    """CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels in 100 classes."""

    binary, names, label_bytes = "cifar-100-binary", "fine_label_names.txt", 2
    archive, archive_md5 = "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"
    files = {
        "train.bin": "e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "8fb6623e830365ff53cf14adec797474f5478006",
    }
    torchvision_name = "CIFAR100"
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
