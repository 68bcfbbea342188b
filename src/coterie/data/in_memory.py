"""Small images in memory: the whole set in uint8, on the training device, where the views are cut out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from .base import Data
from .batch import BatchRequest, Crops, LoadedBatch, SplitName, to_device
from .images import to_image
from .rng import draws
from .sampler import Indices

Pixels = NDArray[np.uint8]
Stored: TypeAlias = "tuple[Pixels | Joined, Indices, Pixels | Joined, Indices]"
"""Training pixels (N, C, H, W) in uint8 and labels in int64, then the test set's."""


class InMemory(Data):
    """A set of small images of one size.

    A subclass says in `read` where its pixels come from. On the CPU, what `read` maps from a file is never copied:
    processes share the pages of that file. To another device a split is copied once, with its first batch; after
    that, image numbers and the places of the crops are sent.
    """

    padding = 4
    """Pixels of black border that a random crop may reach into."""
    halves = False
    """Whether every 2x2 pixels are averaged to one."""

    @abstractmethod
    def read(self) -> Stored:
        """Return the pixels and labels of both splits."""

    def load(self) -> None:
        pixels, labels, test_pixels, test_labels = self.read()
        self.set_splits(labels, test_labels)
        if self.halves:
            pixels, test_pixels = halved(pixels), halved(test_pixels)
        self._stored = {"train": pixels, "val": pixels, "test": test_pixels}
        self._on_device: dict[tuple[SplitName, torch.device], Tensor] = {}
        channels, height, width = pixels[np.arange(1)].shape[1:]
        self.shape = (channels, height, width)

    def load_batch(self, request: BatchRequest) -> LoadedBatch:
        labels = torch.from_numpy(self.labels[request.split][request.images])
        if request.count is None:
            return LoadedBatch(self._images(request)[None], labels)
        top, left, flip, change = np.moveaxis(
            draws(request.seed, request.epoch, request.images, request.count, 4), -1, 0
        )
        padding = self.padding if self.augment.crops else 0
        places = [top * (2 * padding + 1), left * (2 * padding + 1), (flip < 0.5) & self.augment.flips]
        crops = Crops(torch.from_numpy(np.stack(places).astype(np.int64)), padding)
        if self.augment.operations():  # many small operations on one view at a time: not for a GPU
            pixels = torch.from_numpy(self._pixels(request.split, request.images))
            return LoadedBatch(self.augment.each(crops.cut(pixels), change), labels)
        return LoadedBatch(self._images(request)[None], labels, crops=crops)

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        return to_image(self._pixels(split, np.array([image]))[0])

    def content(self, split: SplitName, image: int) -> bytes:
        return self._pixels(split, np.array([image])).tobytes()

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "filter": "box" if self.halves else "bilinear"}

    def _images(self, request: BatchRequest) -> Tensor:
        """Return the images of a request in uint8 on its device."""
        split, device = request.split, request.device
        if device.type == "cpu":
            return torch.from_numpy(self._pixels(split, request.images))
        if (split, device) not in self._on_device:
            whole = self._pixels(split, np.arange(len(self.positions[split])))
            self._on_device[split, device] = to_device(torch.from_numpy(whole), device)
        return self._on_device[split, device][to_device(torch.from_numpy(request.images), device)]

    def _pixels(self, split: SplitName, images: Indices) -> Pixels:
        return self._stored[split][self.positions[split][images]]


class Joined:
    """Several arrays indexed as one, without copying them."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(part) for part in parts)])

    def __getitem__(self, images: Indices) -> Pixels:
        pixels = np.empty((len(images), *self.parts[0].shape[1:]), np.uint8)
        parts = np.searchsorted(self.starts, images, side="right") - 1
        for i in np.unique(parts):
            pixels[parts == i] = self.parts[i][images[parts == i] - self.starts[i]]
        return pixels


def halved(pixels: Pixels | Joined) -> Pixels | Joined:
    """Average every 2x2 pixels of images (N, C, H, W) to one; a mean that ends in .5 goes up."""
    if isinstance(pixels, Joined):
        return Joined([halved(part) for part in pixels.parts])
    n, channels, height, width = pixels.shape
    blocks = pixels.reshape(n, channels, height // 2, 2, width // 2, 2)
    return ((blocks.sum((3, 5), dtype=np.uint16) + 2) // 4).astype(np.uint8)
