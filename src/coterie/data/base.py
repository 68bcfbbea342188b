"""The contract of a data set: what training and evaluation ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..errors import InputError
from .augment import Augment, Augmentation
from .batch import BatchRequest, LoadedBatch, SplitName, normalise
from .device import to_device
from .fingerprint import digest, sampled
from .sampler import Indices
from .subset import Labels, Subset
from .targets import TaskName

NO_LABEL = "no label"
"""What to call the label of an image that has none."""


class Data(ABC):
    """A data set: labelled images in a training split, a test split and, in some sets, a validation split.

    A subclass defines `load` and `load_batch`. `load` reads the files and sets the names of the `classes`, the
    `shape` (channels, height, width) of a view and, with `set_splits`, the labels. `load_batch` returns pixels.

    Args:
        limit: keep the first N training images of each class.
        val_fraction: hold out this fraction of the training images of each class. Scores during training are then
            computed on these, and the test images are not used until `coterie evaluate`.
        augment: the augmentations of each view, in this order: any of crop (small images: with a black border of
            an eighth), flip, randaugment, trivialaugment, erase. Default: crop and flip, if they suit the set.
        limit_seed: draw the `limit` images of each class at random with this seed instead of taking the first;
            the word `seed` stands for the seed of the run.
        val_limit: hold out this many training images of each class from those that `limit` leaves out, instead of
            `val_fraction`. Scores during training are then computed on these.
    """

    classes: list[str]
    shape: tuple[int, int, int]
    labels: dict[SplitName, Labels]
    """The label of every image of a split; or zeros and ones (images, classes) where images have several."""
    positions: dict[SplitName, Indices]
    """Where every image of a split stands among the stored images; those of `val` may be training images."""
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    """Of the normalisation of pixels in [0, 1]; people are shown views without it."""
    augments: Sequence[Augmentation] = ("crop", "flip")
    """The default of `augment`."""
    bad_files: dict[str, str] = {}
    """Files that `load` found to be no images, each with the reason."""
    largest_batch: int | None = None
    """Of test images that are loaded at once."""
    # Also for a subclass that never calls our `__init__`.
    subset = Subset()
    task: TaskName | Literal["auto"] = "auto"
    """What the labels are for, if it is known before they are read."""
    subset_seed: int | None = None
    """The number that `limit_seed` stands for; None without `limit_seed`, or while the run's seed is not known."""

    def __init__(
        self,
        limit: int | None = None,
        val_fraction: float = 0.0,
        augment: Sequence[Augmentation] | None = None,
        limit_seed: int | Literal["seed"] | None = None,
        val_limit: int | None = None,
    ) -> None:
        self.subset = Subset(limit, val_fraction, limit_seed, val_limit)
        self.subset_seed = limit_seed if isinstance(limit_seed, int) else None
        self.augment = Augment(self.augments if augment is None else augment, self.mean)

    @classmethod
    def options_for_path(cls, path: Path) -> dict[str, Any] | None:
        """Return the options that make a set of this kind of a directory or file, None where it is no such set.

        `--data PATH` is the set whose class gives options.
        """
        return None

    def resolve_seed(self, seed: int) -> None:
        """Draw the images of `limit` by this seed of a run, if `limit_seed` is the word `seed`."""
        if self.subset.limit_seed != "seed":
            return
        if hasattr(self, "labels") and self.subset_seed != seed:
            raise InputError(
                f"This data set was loaded with the images of seed {self.subset_seed}: make another one for seed "
                f"{seed}."
            )
        self.subset_seed = seed

    @property
    def several_labels(self) -> bool:
        """Whether an image of the loaded set may have any number of labels."""
        return np.ndim(self.labels["train"]) == 2

    @abstractmethod
    def load(self) -> None:
        """Read the files; bad ones raise an InputError that names them."""

    @abstractmethod
    def load_batch(self, request: BatchRequest) -> LoadedBatch:
        """Return the requested images or views in uint8, or images and where to crop them on the device."""

    def load_batches(self, requests: list[BatchRequest]) -> Iterator[LoadedBatch]:
        """Return one batch after another; a set that is slow to read reads ahead."""
        return map(self.load_batch, requests)

    def set_splits(self, train: Labels, test: Labels, val: Labels | None = None) -> None:
        """Set labels and positions of all splits from the labels of the stored images.

        Without labels of a validation split of its own, images are held out of the training images.
        """
        for split, labels in (("train", train), ("test", test)):
            if labels.ndim == 2:
                continue
            bad = labels[(labels < 0) | (labels >= len(self.classes))]
            if len(bad):
                raise InputError(
                    f"The {split} set has a label {int(bad[0])}, but there are only {len(self.classes)} classes "
                    f"(0 to {len(self.classes) - 1})."
                )
        chosen, held = self.subset.choose(train, self.classes, self.subset_seed)
        self.positions = {"train": chosen, "val": held, "test": np.arange(len(test))}
        self.labels = {"train": train[chosen], "val": train[held], "test": test}
        if val is not None:
            self.positions["val"], self.labels["val"] = np.arange(len(val)), val
        for split, labels in self.labels.items():
            if labels.ndim == 2 and len(labels) and not labels.any():
                raise InputError(f"No image of the {split} set has a label: its scores would mean nothing.")

    def views(self, images: Indices, count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        """Return `count` independently augmented views of these training images, and their labels."""
        return self._to_device(self.load_batch(BatchRequest("train", images, count, seed, epoch)))

    def stream(
        self, batches: Iterable[Indices], count: int, seed: int, epoch: int, device: torch.device | str = "cpu"
    ) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Yield the `views` of one batch after another on the device."""
        requests = [BatchRequest("train", images, count, seed, epoch, device) for images in batches]
        for batch in self.load_batches(requests):
            yield self._to_device(batch, device)

    def test_batches(
        self,
        size: int,
        part: slice = slice(None),
        split: SplitName = "test",
        device: torch.device | str = "cpu",
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the images of a split, or a part of them, not augmented, with their labels, on the device."""
        images = np.arange(len(self.labels[split]))[part]
        size = min(size, self.largest_batch or size)
        starts = range(0, len(images), size)
        requests = [BatchRequest(split, images[start : start + size], device=device) for start in starts]
        for batch in self.load_batches(requests):
            (pixels,), labels = self._to_device(batch, device)
            if len(labels):
                yield pixels, labels

    def _to_device(self, batch: LoadedBatch, device: torch.device | str = "cpu") -> tuple[list[Tensor], Tensor]:
        pixels = batch.views_on(device)
        if pixels.dtype == torch.uint8:
            pixels = normalise(pixels, self.mean, self.std)
        labels = to_device(batch.labels, device)
        return list(pixels), labels.float() if labels.dim() == 2 else labels

    @property
    def title(self) -> str:
        """What people call the set."""
        return type(self).__name__

    def name(self, split: SplitName, image: int) -> str:
        """Return what to call an image in messages."""
        return f"{split} {image}"

    def label_text(self, target: Tensor) -> str:
        """Return the names of an image's classes, by its class number or its zeros and ones."""
        numbers = [int(target)] if target.dim() == 0 else target.nonzero()[:, 0].tolist()
        return ", ".join(self.classes[c] for c in numbers) or NO_LABEL

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        """Return an image as it is stored, for people to look at."""
        raise NotImplementedError

    def preprocessing(self) -> dict[str, Any]:
        """Return how a picture becomes an input, for whoever deploys the network.

        {channels, size: [height, width], resize: the shorter side's length before a centre crop to `size` (None:
        resize straight to `size`), filter: bilinear, antialiased, or box, the average, mean and std: per channel,
        of values from 0 to 1 (None: unknown)}.
        """
        channels, height, width = self.shape
        complete = len(self.mean) == len(self.std) == channels
        mean, std = (list(self.mean), list(self.std)) if complete else (None, None)
        resize = height if height == width else None
        size = {"channels": channels, "size": [height, width], "resize": resize, "filter": "bilinear"}
        return {**size, "mean": mean, "std": std}

    @property
    def train_size(self) -> int:
        return len(self.labels["train"])

    @property
    def test_size(self) -> int:
        return len(self.labels["test"])

    @property
    def eval_split(self) -> SplitName:
        """The split that training reports on: held-out images where there are any, else the test images."""
        return "val" if len(self.labels.get("val", ())) else "test"

    @property
    def eval_size(self) -> int:
        return len(self.labels[self.eval_split])

    def fingerprint(self) -> dict[str, object]:
        """Return what a continued run must find again: classes, shape, sizes, and digests of labels and contents.

        Contents are those of a sample of images: of sets that give none in `content`, of none.
        """
        sizes = {split: len(labels) for split, labels in self.labels.items()}
        labels = digest(np.ascontiguousarray(values).tobytes() for values in self.labels.values())
        contents = digest(self.content(split, image) for split, size in sizes.items() for image in sampled(size))
        return {
            "classes": self.classes,
            "shape": list(self.shape),
            "images": sizes,
            "labels": labels,
            "contents": contents,
        }

    def content(self, split: SplitName, image: int) -> bytes:
        """Return the bytes of a stored image, for `fingerprint`."""
        return b""
