"""Small images in memory: the whole set in uint8, all views of a batch by one indexing operation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from .augment import Augment, Augmentation
from .base import Data, Indices, Split, normalise
from .rng import draws

Pixels = NDArray[np.uint8]


class InMemory(Data):
    """A set of small images of one size.

    A subclass says in `read` where its pixels come from. What `read` maps from a file is never copied: processes
    share the pages of that file.

    Args:
        limit: keep the first N training images of each class.
        val_fraction: hold out this fraction of the training images of each class; training then reports on
            these, and the test images stay unseen until `coterie evaluate`.
        augment: what is done to each view, in this order: any of crop (from a black border of an eighth of the
            image), flip, randaugment, trivialaugment, erase. By default what suits the set: crop and flip.
        limit_seed: draw the `limit` images of each class by this number instead of taking the first; the word
            `seed` stands for the run's own --seed.
        val_limit: hold out this many training images of each class from those that `limit` leaves out; training
            then reports on these. It takes the place of `val_fraction`.
    """

    padding = 4
    """Pixels of black border that a random crop may reach into."""
    augments: Sequence[Augmentation] = ("crop", "flip")

    def __init__(
        self,
        limit: int | None = None,
        val_fraction: float = 0.0,
        augment: Sequence[Augmentation] | None = None,
        limit_seed: int | Literal["seed"] | None = None,
        val_limit: int | None = None,
    ) -> None:
        super().__init__(limit, val_fraction, limit_seed, val_limit)
        self.augment = Augment(self.augments if augment is None else augment, self.mean)

    @abstractmethod
    def read(self) -> tuple[Pixels | Joined, Indices, Pixels | Joined, Indices]:
        """Training pixels (N, C, H, W) in uint8 and labels in int64, then the test set's."""

    def load(self) -> None:
        pixels, labels, test_pixels, test_labels = self.read()
        self.labels = {"train": labels, "test": test_labels}
        self.check_labels("train")
        self.check_labels("test")
        train, val = self.choose(labels)
        self.labels = {"train": labels[train], "val": labels[val], "test": test_labels}
        self._pixels = {"train": pixels, "val": pixels, "test": test_pixels}
        self._places = {"train": train, "val": val, "test": np.arange(len(test_labels))}
        channels, height, width = pixels[np.arange(1)].shape[1:]
        self.shape = (channels, height, width)

    def views(self, images: Indices, count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        _, height, width = self.shape
        random = draws(seed, epoch, images, count, 4)  # (views, images, 4)
        p = self.padding if self.augment.crops else 0
        # Black before normalisation, as torchvision's RandomCrop pads.
        padded = np.pad(self._at("train", images), ((0, 0), (0, 0), (p, p), (p, p)))
        flip = (random[..., 2] < 0.5).astype(np.int64) * self.augment.flips
        top, left = np.moveaxis((random[..., :2] * (2 * p + 1)).astype(np.int64), -1, 0)
        left = np.where(flip, 2 * p - left, left)  # the crop's place in the mirrored image
        # Every crop of every image and of its mirror image, without a copy; one indexing takes those drawn.
        mirrored = np.stack([padded, padded[..., ::-1]])
        crops = np.lib.stride_tricks.sliding_window_view(mirrored, (height, width), axis=(3, 4))
        pixels = crops.transpose(0, 1, 3, 4, 2, 5, 6)[flip, np.arange(len(images)), top, left]
        pixels = self.augment.each(pixels, random[..., 3])
        labels = torch.from_numpy(self.labels["train"][images])
        return list(normalise(torch.from_numpy(pixels), self.mean, self.std)), labels

    def test_batches(
        self, size: int, part: slice = slice(None), split: Split = "test"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        chosen = np.arange(len(self.labels[split]))[part]
        for start in range(0, len(chosen), size):
            images = chosen[start : start + size]
            pixels = torch.from_numpy(self._at(split, images))
            yield normalise(pixels, self.mean, self.std), torch.from_numpy(self.labels[split][images])

    def original(self, image: int, split: Split = "train") -> Image.Image:
        pixels = self._at(split, np.array([image]))[0]
        return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))

    def _at(self, split: Split, images: Indices) -> Pixels:
        return self._pixels[split][self._places[split][images]]


class Joined:
    """Several arrays indexed as one, without copying them."""

    def __init__(self, parts: Sequence[Pixels]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(part) for part in parts)])

    def __getitem__(self, images: Indices) -> Pixels:
        found = np.empty((len(images), *self.parts[0].shape[1:]), np.uint8)
        where = np.searchsorted(self.starts, images, side="right") - 1
        for i in np.unique(where):
            here = where == i
            found[here] = self.parts[i][images[here] - self.starts[i]]
        return found


def halved(pixels: Pixels) -> Pixels:
    """(N, C, H, W) with every 2x2 pixels averaged to one; a mean that ends in .5 goes up."""
    n, channels, height, width = pixels.shape
    blocks = pixels.reshape(n, channels, height // 2, 2, width // 2, 2)
    return ((blocks.sum((3, 5), dtype=np.uint16) + 2) // 4).astype(np.uint8)
