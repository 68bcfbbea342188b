"""`cifar10` and `cifar100` from their official releases, the binary or the python one, checksummed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .base import Indices
from .in_memory import InMemory, Joined, Pixels, halved
from .unpickle import unpickle

__all__ = ["cifar10", "cifar100"]

SITE = "https://www.cs.toronto.edu/~kriz/"


class Cifar(InMemory):
    """What CIFAR-10 and CIFAR-100 have in common.

    Args:
        root: the folder that holds the unpacked release, binary or python, or the release's folder itself.
        size: 16 averages every 2x2 pixels to one (a mean that ends in .5 goes up), and halves the crop's border.
    """

    binary: str
    """The binary release's folder; `train_files` and `test_files` are in it, with their SHA-1."""
    python: str
    """The python release's folder, with the MD5 of its files in `python_files`, the training files first."""
    archive_md5: str
    train_files: dict[str, str]
    test_files: dict[str, str]
    python_files: dict[str, str]
    python_meta: tuple[str, str, str]
    """The file of the class names, its MD5 and its key."""
    python_label: str
    per_file: dict[str, int]
    """How many images a file holds."""
    label_bytes: int
    names: str

    def __init__(self, root: str = "data", size: Literal[16, 32] = 32, **options: Any) -> None:
        super().__init__(**options)
        self.root, self.size = Path(root), size
        self.padding = size // 8

    @classmethod
    def files(cls) -> dict[str, str]:
        """The files of the binary release that hold images, with their SHA-1."""
        return {**cls.train_files, **cls.test_files}

    def read(self) -> tuple[Pixels | Joined, Indices, Pixels | Joined, Indices]:
        if (found := _folder(self.root, self.binary, self.names)) is not None:
            self.classes = (found / self.names).read_text(encoding="utf-8", errors="replace").split()
            train = [self._binary(found / name, sha1) for name, sha1 in self.train_files.items()]
            test = [self._binary(found / name, sha1) for name, sha1 in self.test_files.items()]
        elif (found := _folder(self.root, self.python, self.python_meta[0])) is not None:
            name, md5, key = self.python_meta
            check(found / name, "md5", md5)
            self.classes = [_text(c) for c in unpickle(found / name).get(key, ())]
            parts = [self._python(found / name, md5) for name, md5 in self.python_files.items()]
            train, test = parts[: len(self.train_files)], parts[len(self.train_files) :]
        else:
            name = type(self).__name__
            raise InputError(
                f"{name} is not under {self.root}: `coterie data {name} --root {self.root}` fetches it, or "
                f"unpack {SITE}{self.binary_archive()} there, or point --data.root at it."
            )
        return (*_joined(train), *_joined(test))

    @classmethod
    def binary_archive(cls) -> str:
        return cls.__name__.replace("cifar", "cifar-") + "-binary.tar.gz"

    def _binary(self, file: Path, sha1: str) -> tuple[Pixels, Indices]:
        """A file's images, mapped, not read: processes share its pages."""
        width, count = self.label_bytes + 3072, self.per_file[file.name]
        if not file.is_file():
            raise InputError(f"{file} is missing: unpack the release again.")
        size = file.stat().st_size
        if size != count * width:
            raise InputError(f"{file} has {size:,} bytes, not {count * width:,}: it is damaged, fetch it again.")
        check(file, "sha1", sha1)
        records = np.memmap(file, np.uint8, "r").reshape(count, width)
        labels = records[:, self.label_bytes - 1].astype(np.int64)
        return self._resized(records[:, self.label_bytes :].reshape(-1, 3, 32, 32)), labels

    def _python(self, file: Path, md5: str) -> tuple[Pixels, Indices]:
        check(file, "md5", md5)
        batch = unpickle(file)
        pixels, labels = batch.get("data"), batch.get(self.python_label)
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3072:
            raise InputError(f"{file} holds no images of 3,072 bytes: fetch it again.")
        if not isinstance(labels, list) or len(labels) != len(pixels) or {*map(type, labels)} - {int}:
            raise InputError(f"{file} does not hold a label for each image: fetch it again.")
        try:
            return self._resized(pixels.reshape(-1, 3, 32, 32)), np.array(labels, np.int64)
        except OverflowError:
            raise InputError(f"{file} holds a label that is no class: fetch it again.") from None

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "filter": "bilinear" if self.size == 32 else "box"}

    def _resized(self, pixels: Pixels) -> Pixels:
        return pixels if self.size == 32 else halved(pixels)


def check(file: Path, kind: Literal["md5", "sha1"], expected: str) -> None:
    """Refuse a file that is not the released one."""
    digest = hashlib.new(kind, usedforsecurity=False)
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): unpack the release again.") from None
    if digest.hexdigest() != expected:
        raise InputError(f"{file} is not the released file: its {kind.upper()} differs; fetch it again.")


def _folder(root: Path, name: str, file: str) -> Path | None:
    return next((folder for folder in (root / name, root) if (folder / file).is_file()), None)


def _joined(parts: list[tuple[Pixels, Indices]]) -> tuple[Pixels | Joined, Indices]:
    pixels, labels = zip(*parts, strict=True)
    return pixels[0] if len(pixels) == 1 else Joined(pixels), np.concatenate(labels)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class cifar10(Cifar):
    """CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""

    binary, names, label_bytes = "cifar-10-batches-bin", "batches.meta.txt", 1
    archive_md5 = "c32a1d4ab5d03f1284b67883e8d87530"
    train_files = {
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    }
    test_files = {"test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c"}
    per_file = dict.fromkeys([*train_files, *test_files], 10000)
    python, python_label = "cifar-10-batches-py", "labels"
    python_meta = ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888", "label_names")
    python_files = {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    }
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class cifar100(Cifar):
    """CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels in 100 classes."""

    binary, names, label_bytes = "cifar-100-binary", "fine_label_names.txt", 2
    archive_md5 = "03b5dce01913d631647c71ecec9e9cb8"
    train_files = {"train.bin": "e207cd2e05b73b1393c74c7f5e7bea451d63e08e"}
    test_files = {"test.bin": "8fb6623e830365ff53cf14adec797474f5478006"}
    per_file = {"train.bin": 50000, "test.bin": 10000}
    python, python_label = "cifar-100-python", "fine_labels"
    python_meta = ("meta", "7973b15100ade9c7d40fb424638fde48", "fine_label_names")
    python_files = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
