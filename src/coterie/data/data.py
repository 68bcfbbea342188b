"""The contract of a data set: what training and evaluation ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..errors import InputError

Split = Literal["train", "val", "test"]
Indices = NDArray[np.int64]


class Data(ABC):
    """Labelled images in a training and a test split, perhaps a validation split. Making one is cheap.

    `load` reads it, and then it has:
        classes: the names of the classes.
        shape: (channels, height, width) of a view.
        labels: the label of every image of a split, by the split's name.

    Args:
        limit: keep the first N training images of each class.
        val_fraction: hold out this fraction of the training images of each class; training then reports on
            these, and the test images stay unseen until `coterie evaluate`.
    """

    classes: list[str]
    shape: tuple[int, int, int]
    labels: dict[Split, Indices]
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    """Of the normalisation of pixels in [0, 1]; people are shown views without it."""

    def __init__(self, limit: int | None = None, val_fraction: float = 0.0) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"--data.limit must be at least 1 image per class, not {limit}.")
        if not 0 <= val_fraction < 1:
            raise InputError(f"--data.val_fraction is a fraction from 0 to below 1, not {val_fraction}.")
        self.limit, self.val_fraction = limit, val_fraction

    @abstractmethod
    def load(self) -> None:
        """Read the files; bad ones raise an InputError that names them."""

    @abstractmethod
    def views(self, images: Indices, count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        """`count` independently augmented views of these training images, and their labels."""

    def stream(
        self,
        batches: Iterable[Indices],
        count: int,
        seed: int,
        epoch: int,
        device: torch.device | str = "cpu",
    ) -> Iterator[tuple[list[Tensor], Tensor]]:
        """`views` of one batch after another on the device, read ahead where reading takes time."""
        for images in batches:
            views, labels = self.views(images, count, seed, epoch)
            yield [to_device(view, device) for view in views], to_device(labels, device)

    @abstractmethod
    def test_batches(
        self, size: int, part: slice = slice(None), split: Split = "test"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The images of a split, or a part of them, not augmented, with their labels."""

    @property
    def title(self) -> str:
        """What people call the set."""
        return type(self).__name__

    def preprocessing(self) -> dict[str, Any]:
        """How a picture becomes an input, for whoever deploys the network.

        {channels, size: [height, width], resize: the shorter side's length before a centre crop to `size` (None:
        resize straight to `size`), filter: bilinear, antialiased, or box, the average, mean and std: per channel,
        of values from 0 to 1 (None: this cannot be told)}.
        """
        channels, height, width = self.shape
        told = len(self.mean) == len(self.std) == channels
        mean, std = (list(self.mean), list(self.std)) if told else (None, None)
        resize = height if height == width else None
        how = {"channels": channels, "size": [height, width], "resize": resize, "filter": "bilinear"}
        return {**how, "mean": mean, "std": std}

    def original(self, image: int, split: Split = "train") -> Image.Image:
        """An image as it is stored, for people to look at."""
        raise NotImplementedError

    @property
    def train_size(self) -> int:
        return len(self.labels["train"])

    @property
    def test_size(self) -> int:
        return len(self.labels["test"])

    @property
    def watched(self) -> Split:
        """The split that training reports on: held-out images where there are any, else the test images."""
        return "val" if len(self.labels.get("val", ())) else "test"

    @property
    def watched_size(self) -> int:
        return len(self.labels[self.watched])

    def described(self) -> dict[str, object]:
        """What a run must find again when it goes on: classes, shape and sizes."""
        sizes = {split: len(labels) for split, labels in self.labels.items()}
        return {"classes": self.classes, "shape": list(self.shape), "images": sizes}

    def choose(self, labels: Indices) -> tuple[Indices, Indices]:
        """Which training images to train with and which to hold out, by `limit` and `val_fraction`.

        The choice depends on the labels alone, so every seed and every method is judged on the same images.
        """
        kept, held = [], []
        for c in range(len(self.classes)):
            found = np.flatnonzero(labels == c)[: self.limit]
            out = min(round(self.val_fraction * len(found)), max(0, len(found) - 1))  # one is left to train with
            mixed = np.random.default_rng((20210202, c)).permutation(found) if out else found
            held.append(mixed[:out])
            kept.append(mixed[out:])
        train, val = np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))
        if self.val_fraction and not len(val):
            raise InputError(f"--data.val_fraction {self.val_fraction} holds out no image of {len(train)}.")
        if not len(train):
            raise InputError("There are no images to train with.")
        return train, val

    def check_labels(self, split: Split) -> None:
        """Refuse labels that are no class."""
        labels = self.labels[split]
        bad = labels[(labels < 0) | (labels >= len(self.classes))]
        if len(bad):
            raise InputError(
                f"The {split} set has a label {int(bad[0])}, but there are only {len(self.classes)} classes "
                f"(0 to {len(self.classes) - 1})."
            )


def normalise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(..., C, H, W) uint8 to float32 with this mean and standard deviation taken out, on the pixels' device."""
    centre, deviation = (_per_channel(tuple(values), pixels.device) for values in (mean, std))
    # Laid out anew: grey images as NumPy leaves them can look channels-last, which not every network can take.
    whole = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device).copy_(pixels)
    return whole.sub_(centre).div_(deviation)


@cache  # numbers on their way to a GPU are waited for: once, not with every batch
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return 255.0 * torch.tensor(values, device=device).view(-1, 1, 1)


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """On this device, through pinned memory: a copy to a GPU from any other waits for the steps before it."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
