"""Small images in memory: the whole set one uint8 tensor, all views of a batch one indexing operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .data import Data
from .draws import draws


class InMemory(Data):
    """A set of small images, cropped from a padded border and flipped as the paper does.

    A subclass says in `read` where its pixels come from.

    Args:
        limit: keep the first N training images of each class.
    """

    padding = 4
    """Pixels of black border that a random crop may reach into."""
    flip = True
    mean: Sequence[float]
    std: Sequence[float]

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"--data.limit must be at least 1 image per class, not {limit}.")
        self.limit = limit

    def read(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Training pixels (N, H, W, C) in uint8 and labels in int64, then the test set's."""
        raise NotImplementedError

    def load(self) -> None:
        pixels, labels, test_pixels, test_labels = self.read()
        for part, found in (("training", labels), ("test", test_labels)):
            bad = found[(found < 0) | (found >= len(self.classes))]
            if len(bad):
                raise InputError(
                    f"The {part} set has a label {int(bad[0])}, but there are only {len(self.classes)} classes "
                    f"(0 to {len(self.classes) - 1})."
                )
        if self.limit is not None:
            kept = torch.cat([(labels == c).nonzero()[: self.limit, 0] for c in range(len(self.classes))])
            kept = kept.sort().values
            pixels, labels = pixels[kept], labels[kept]
        _, height, width, channels = pixels.shape
        self.shape = (channels, height, width)
        self.train_size = len(pixels)
        p = self.padding
        # Black before normalisation, as torchvision's RandomCrop pads.
        self._train = torch.nn.functional.pad(pixels, (0, 0, p, p, p, p)).contiguous()
        self._test, self._labels, self._test_labels = test_pixels.contiguous(), labels, test_labels
        std = 255.0 * torch.tensor(self.std)
        self._scale, self._shift = 1.0 / std, -255.0 * torch.tensor(self.mean) / std

    def views(self, images: NDArray[np.int64], count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        _, height, width = self.shape
        random = torch.from_numpy(draws(seed, epoch, images, count, 3))  # (views, images, 3)
        top, left = (random[..., :2] * (2 * self.padding + 1)).long().unbind(-1)
        columns = torch.arange(width).expand(*left.shape, width)
        if self.flip:
            columns = torch.where(random[..., 2:] < 0.5, columns.flip(-1), columns)
        rows = top[..., None] + torch.arange(height)
        columns = left[..., None] + columns
        index = torch.from_numpy(images)
        pixels = self._train[index[:, None, None], rows[..., :, None], columns[..., None, :]]
        return list(self._normalise(pixels)), self._labels[index]

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self._test), size):
            part = slice(start, start + size)
            yield self._normalise(self._test[part]), self._test_labels[part]

    def preprocessing(self) -> dict[str, Any]:
        channels, *size = self.shape
        mean, std = list(self.mean), list(self.std)
        return {"channels": channels, "size": size, "resize": min(size), "mean": mean, "std": std}

    def _normalise(self, pixels: Tensor) -> Tensor:
        """(..., H, W, C) uint8 -> (..., C, H, W) float32; in memory the channels stay last."""
        return pixels.float().mul_(self._scale).add_(self._shift).movedim(-1, -3)
