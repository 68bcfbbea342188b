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

SUBSET_DRAW = 20261119
"""Sets the draws of `limit_seed` apart from others of the same seed."""


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
        limit_seed: draw the `limit` images of each class by this number instead of taking the first; the word
            `seed` stands for the run's own --seed.
        val_limit: hold out this many training images of each class from those that `limit` leaves out; training
            then reports on these. It takes the place of `val_fraction`.
    """

    classes: list[str]
    shape: tuple[int, int, int]
    labels: dict[Split, Indices]
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    """Of the normalisation of pixels in [0, 1]; people are shown views without it."""
    # Also for a subclass that never calls our `__init__`.
    limit_seed: int | Literal["seed"] | None = None
    val_limit: int | None = None
    subset_seed: int | None = None
    """The number that `limit_seed` stands for; None without `limit_seed`, or while the run's seed is not known."""

    def __init__(
        self,
        limit: int | None = None,
        val_fraction: float = 0.0,
        limit_seed: int | Literal["seed"] | None = None,
        val_limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 1:
            raise InputError(f"--data.limit must be at least 1 image per class, not {limit}.")
        if not 0 <= val_fraction < 1:
            raise InputError(f"--data.val_fraction is a fraction from 0 to below 1, not {val_fraction}.")
        if isinstance(limit_seed, str) and limit_seed != "seed":
            raise InputError(f"--data.limit_seed is a whole number or the word seed, not '{limit_seed}'.")
        if isinstance(limit_seed, int) and limit_seed < 0:
            raise InputError(f"--data.limit_seed must not be negative, not {limit_seed}.")
        if limit_seed is not None and limit is None:
            raise InputError("--data.limit_seed draws the images of --data.limit: give --data.limit as well.")
        if val_limit is not None and val_limit < 1:
            raise InputError(f"--data.val_limit must be at least 1 image per class, not {val_limit}.")
        if val_limit is not None and limit is None:
            raise InputError(
                "--data.val_limit holds out images that --data.limit leaves out: give --data.limit as well."
            )
        if val_limit is not None and val_fraction:
            raise InputError("--data.val_limit and --data.val_fraction both hold images out: leave one away.")
        self.limit, self.val_fraction = limit, val_fraction
        self.limit_seed, self.val_limit = limit_seed, val_limit
        self.subset_seed = limit_seed if isinstance(limit_seed, int) else None

    def resolve_seed(self, seed: int) -> None:
        """Draw the images of `limit` by this seed of a run, if `limit_seed` is the word `seed`."""
        if self.limit_seed != "seed":
            return
        if hasattr(self, "labels") and self.subset_seed != seed:
            raise InputError(
                f"This data set was loaded with the images of seed {self.subset_seed}: make another one for seed "
                f"{seed}."
            )
        self.subset_seed = seed

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
    def eval_split(self) -> Split:
        """The split that training reports on: held-out images where there are any, else the test images."""
        return "val" if len(self.labels.get("val", ())) else "test"

    @property
    def eval_size(self) -> int:
        return len(self.labels[self.eval_split])

    def fingerprint(self) -> dict[str, object]:
        """What a run must find again when it goes on: classes, shape and sizes."""
        sizes = {split: len(labels) for split, labels in self.labels.items()}
        return {"classes": self.classes, "shape": list(self.shape), "images": sizes}

    def choose(self, labels: Indices) -> tuple[Indices, Indices]:
        """Choose the training images to train with and those to hold out.

        The choice depends on the labels and on `subset_seed` alone, so that every method, and without
        `limit_seed` every seed, is judged on the same images.
        """
        if self.limit_seed == "seed" and self.subset_seed is None:
            raise InputError(
                "--data.limit_seed seed stands for the --seed of a run, and there is no run here: give a number."
            )
        kept, held = [], []
        for c in range(len(self.classes)):
            of_class = np.flatnonzero(labels == c)
            if self.subset_seed is not None:
                of_class = np.random.default_rng((self.subset_seed, SUBSET_DRAW, c)).permutation(of_class)
            limited = np.sort(of_class[: self.limit])
            unused = of_class[len(limited) :]
            if len(unused) < (self.val_limit or 0):
                raise InputError(
                    f"--data.limit {self.limit} leaves {len(unused)} training images of the class "
                    f"{self.classes[c]} unused, fewer than --data.val_limit {self.val_limit}: lower one of them."
                )
            # One image is left to train with.
            out = min(round(self.val_fraction * len(limited)), max(0, len(limited) - 1))
            mixed = np.random.default_rng((20210202, c)).permutation(limited) if out else limited
            held += [mixed[:out], unused[: self.val_limit or 0]]
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
