"""Small images in memory: the whole set in uint8, on the device that trains; views are cut out there."""

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
from .batch import BatchRequest, Crops, LoadedBatch, SplitName
from .device import to_device
from .images import to_image
from .rng import draws
from .sampler import Indices

Pixels = NDArray[np.uint8]
Stored: TypeAlias = "tuple[Pixels | Joined, Indices, Pixels | Joined, Indices]"
"""Training pixels (N, C, H, W) in uint8 and labels in int64, then the test set's."""
LARGEST_ON_DEVICE = 2 * 2**30
"""Bytes of pixels of a split that a GPU is given to keep; those of a larger one are sent batch by batch."""


class InMemory(Data):
    """A set of small images of one size.

    A subclass says in `read` where its pixels come from. What `read` maps from a file is never copied: processes
    share the pages of that file. A GPU gets the pixels and labels of a split once, and from then on the numbers of
    the images of a batch, and where to crop them.
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
        channels, height, width = pixels[np.arange(1)].shape[1:]
        self.shape = (channels, height, width)
        self._on_device: dict[tuple[SplitName, torch.device], tuple[Tensor, Tensor]] = {}

    def load_batch(self, request: BatchRequest) -> LoadedBatch:
        operations = request.count is not None and self.augment.operations()
        pixels, labels = self._images(request, on_host=bool(operations))
        if request.count is None:
            return LoadedBatch(pixels[None], labels)
        top, left, flip, change = np.moveaxis(
            draws(request.seed, request.epoch, request.images, request.count, 4), -1, 0
        )
        padding = self.padding if self.augment.crops else 0
        places = [top * (2 * padding + 1), left * (2 * padding + 1), (flip < 0.5) & self.augment.flips]
        crops = Crops(torch.from_numpy(np.stack(places).astype(np.int64)), padding)
        if operations:  # many small operations on one view at a time: not for a GPU
            return LoadedBatch(self.augment.each(crops.cut(pixels), change), labels)
        return LoadedBatch(pixels[None], labels, crops=crops)

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        return to_image(self._pixels(split, np.array([image]))[0])

    def content(self, split: SplitName, image: int) -> bytes:
        return self._pixels(split, np.array([image])).tobytes()

    def preprocessing(self) -> dict[str, Any]:
        return {**super().preprocessing(), "filter": "box" if self.halves else "bilinear"}

    def _images(self, request: BatchRequest, on_host: bool) -> tuple[Tensor, Tensor]:
        """Return the pixels and labels of a request: of the device that keeps them, or of this one."""
        split, images = request.split, request.images
        size = len(self.labels[split]) * int(np.prod(self.shape))
        if on_host or request.on_cpu or size > LARGEST_ON_DEVICE:
            return torch.from_numpy(self._pixels(split, images)), torch.from_numpy(self.labels[split][images])
        device = torch.empty(0, device=request.device).device  # `cuda` and `cuda:0` may be the same
        key = split, device
        if key not in self._on_device:
            pixels = torch.from_numpy(self._pixels(split, np.arange(len(self.labels[split]))))
            labels = torch.from_numpy(self.labels[split])
            self._on_device[key] = to_device(pixels, device), to_device(labels, device)
        numbers = to_device(torch.from_numpy(images), device)
        pixels, labels = self._on_device[key]
        return pixels[numbers], labels[numbers]

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
