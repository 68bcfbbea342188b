"""`cifar10` and `cifar100` from their official binary layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .memory import InMemory

__all__ = ["cifar10", "cifar100"]


class Cifar(InMemory):
    """What CIFAR-10 and CIFAR-100 have in common.

    Args:
        root: the folder that holds the unpacked binary release, or its parent.
    """

    folder: str
    train_files: dict[str, int]
    test_files: dict[str, int]
    label_bytes: int
    names: str

    def __init__(self, root: str = "data", **options: int | None) -> None:
        super().__init__(**options)
        self.root = Path(root)

    def read(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        self.path = next((p for p in (self.root / self.folder, self.root) if (p / self.names).is_file()), None)
        if self.path is None:
            raise InputError(
                f"{type(self).__name__} is not under {self.root}: unpack its binary release there, so that "
                f"{self.root / self.folder / self.names} exists, or point --data.root at it."
            )
        self.classes = (self.path / self.names).read_text().split()
        return (*self._records(self.train_files), *self._records(self.test_files))

    def _records(self, files: dict[str, int]) -> tuple[Tensor, Tensor]:
        assert self.path is not None
        width = self.label_bytes + 3072
        parts = []
        for name, count in files.items():
            file = self.path / name
            if not file.is_file():
                raise InputError(f"{file} is missing: unpack the release again.")
            size = file.stat().st_size
            if size != count * width:
                raise InputError(
                    f"{file} has {size:,} bytes, not {count * width:,}: it is damaged, fetch it again."
                )
            parts.append(np.fromfile(file, dtype=np.uint8).reshape(count, width))
        records = torch.from_numpy(np.concatenate(parts))
        planes = records[:, self.label_bytes :].reshape(-1, 3, 32, 32)
        return planes.permute(0, 2, 3, 1).contiguous(), records[:, self.label_bytes - 1].long()


class cifar10(Cifar):
    """CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes."""

    folder, names, label_bytes = "cifar-10-batches-bin", "batches.meta.txt", 1
    train_files = {f"data_batch_{i}.bin": 10000 for i in range(1, 6)}
    test_files = {"test_batch.bin": 10000}
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class cifar100(Cifar):
    """CIFAR-100: 50,000 training and 10,000 test images of 32x32 pixels in 100 classes."""

    folder, names, label_bytes = "cifar-100-binary", "fine_label_names.txt", 2
    train_files, test_files = {"train.bin": 50000}, {"test.bin": 10000}
    mean, std = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
