"""Images read one by one: workers read ahead, decode each image once and make all its views."""

from __future__ import annotations

import copy
import os
import signal
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import InputError, warn
from ..signals import ASKED
from .augment import Augment, Augmentation
from .base import Data, Indices, Split, normalise, to_device
from .images import Unreadable
from .rng import draws

NUMBERS = 24
"""Draws for each view: 22 for a resized crop, one for the flip, one for what comes after."""


@dataclass
class Order:
    """What a worker is asked for: views of a batch of images, or, without a count, the images as they are."""

    split: Split
    images: Indices
    count: int | None = None
    seed: int = 0
    epoch: int = 0


@dataclass
class Delivery:
    """What it gives: (views, images, C, H, W), the labels, and what could not be read and why.

    Pixels travel in uint8, a quarter of the bytes; those of a `Dataset` that made its own views are floats.
    """

    pixels: Tensor
    labels: Tensor
    bad: dict[str, str]

    def pin_memory(self) -> Delivery:
        return Delivery(self.pixels.pin_memory(), self.labels.pin_memory(), self.bad)


class Loaded(Data):
    """A set whose images are read when they are needed. A subclass reads one image and makes views of it.

    Args:
        limit: keep the first N training images of each class.
        val_fraction: hold out this fraction of the training images of each class; training then reports on
            these, and the test images stay unseen until `coterie evaluate`.
        augment: what is done to each view, in this order: any of crop, flip, randaugment, trivialaugment, erase.
            By default crop and flip.
        strict: fail when an image cannot be read, instead of skipping it with a warning.
        workers: processes that read ahead; by default one per core, at most 8. It changes no number.
        limit_seed: draw the `limit` images of each class by this number instead of taking the first; the word
            `seed` stands for the run's own --seed.
        val_limit: hold out this many training images of each class from those that `limit` leaves out; training
            then reports on these. It takes the place of `val_fraction`.
    """

    def __init__(
        self,
        limit: int | None = None,
        val_fraction: float = 0.0,
        augment: Sequence[Augmentation] | None = None,
        strict: bool = False,
        workers: int | None = None,
        limit_seed: int | Literal["seed"] | None = None,
        val_limit: int | None = None,
    ) -> None:
        super().__init__(limit, val_fraction, limit_seed, val_limit)
        if workers is not None and workers < 0:
            raise InputError(f"--data.workers must be at least 0, not {workers}.")
        self.augment = Augment(("crop", "flip") if augment is None else augment, self.mean)
        self.strict = strict
        self.workers = min(8, max(1, cores() // _trainings())) if workers is None else workers
        self._orders: list[Order] = []
        self._loader: DataLoader[Any] | None = None
        self._told: set[str] = set()

    @abstractmethod
    def fetch(self, split: Split, image: int) -> Any:
        """Read and decode an image, or raise Unreadable."""

    @abstractmethod
    def name(self, split: Split, image: int) -> str:
        """What to call an image when it cannot be read."""

    @abstractmethod
    def view(self, image: Any, numbers: NDArray[np.float64]) -> Tensor:
        """A view (C, H, W) of a decoded image, as these numbers in [0, 1) say."""

    @abstractmethod
    def plain(self, image: Any) -> Tensor:
        """The image (C, H, W) as a test image is seen."""

    def views(self, images: Indices, count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        return self._unpacked(self._deliver(Order("train", images, count, seed, epoch)), len(images))

    def stream(
        self,
        batches: Iterable[Indices],
        count: int,
        seed: int,
        epoch: int,
        device: torch.device | str = "cpu",
    ) -> Iterator[tuple[list[Tensor], Tensor]]:
        orders = [Order("train", images, count, seed, epoch) for images in batches]
        for order, delivery in zip(orders, self._delivered(orders), strict=True):
            yield self._unpacked(delivery, len(order.images), device)

    def test_batches(
        self, size: int, part: slice = slice(None), split: Split = "test"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        chosen = np.arange(len(self.labels[split]))[part]
        size = min(size, 250)  # large images: what is read ahead must fit into memory
        orders = [Order(split, chosen[start : start + size]) for start in range(0, len(chosen), size)]
        for delivery in self._delivered(orders):
            self._tell(delivery.bad)
            if len(delivery.labels):
                yield self._normal(delivery.pixels)[0], delivery.labels

    def _unpacked(
        self, delivery: Delivery, asked: int, device: torch.device | str = "cpu"
    ) -> tuple[list[Tensor], Tensor]:
        self._tell(delivery.bad)
        if len(delivery.labels) < min(2, asked):  # batch-norm needs two
            raise InputError(
                f"Of a batch of {asked} images {len(delivery.labels)} could be read: "
                "`coterie data inspect` lists the bad files."
            )
        pixels = to_device(delivery.pixels, device)  # a quarter of the bytes: normalised over there
        return [self._normal(view) for view in pixels], to_device(delivery.labels, device)

    def _normal(self, pixels: Tensor) -> Tensor:
        return normalise(pixels, self.mean, self.std) if pixels.dtype == torch.uint8 else pixels

    def _tell(self, bad: dict[str, str]) -> None:
        """Warn of images that could not be read, of each once; or stop, if that was asked for."""
        new = {name: reason for name, reason in bad.items() if name not in self._told}
        if not new:
            return
        listed = "; ".join(f"{name} ({reason})" for name, reason in list(new.items())[:20])
        listed += f"; and {len(new) - 20} more" if len(new) > 20 else ""
        if self.strict:
            raise InputError(
                f"{_images(len(new))} cannot be read: {listed}. Without --data.strict they are skipped."
            )
        self._told |= set(new)
        total = f", {len(self._told)} so far" if len(self._told) > len(new) else ""
        warn(f"{_images(len(new))} cannot be read and will be skipped{total}: {listed}.")

    def _delivered(self, orders: list[Order]) -> Iterator[Delivery]:
        if self.workers == 0:
            yield from map(self._deliver, orders)
            return
        if self._loader is None:
            self.augment.prepare()  # here, once, rather than in every worker
            self._loader = DataLoader(
                _Desk(copy.copy(self)),  # without the loader: a circle of references would stop slowly
                batch_size=None,  # an order is a batch already
                sampler=self._orders,
                num_workers=self.workers,
                persistent_workers=True,
                worker_init_fn=_left_to_the_parent,
                pin_memory=torch.cuda.is_available(),
                generator=torch.Generator(),  # or it would draw from the training's
            )
        self._orders[:] = orders  # the loader's sampler: its workers go on from epoch to epoch
        yield from self._loader

    def _deliver(self, order: Order) -> Delivery:
        random = None
        if order.count is not None:
            random = draws(order.seed, order.epoch, order.images, order.count, NUMBERS)
        found: list[Tensor] = []  # (views, C, H, W) of each image
        good, bad = [], {}
        for i, image in enumerate(order.images.tolist()):
            try:
                decoded = self.fetch(order.split, image)
                if random is None:
                    found.append(self.plain(decoded)[None])
                else:
                    found.append(torch.stack([self.view(decoded, numbers) for numbers in random[:, i]]))
                good.append(image)
            except Unreadable as error:
                bad[self.name(order.split, image)] = str(error)
        # One memory format in and out: copying is then as fast as it can be.
        pixels = torch.stack(found, dim=1) if found else torch.empty(order.count or 1, 0, *self.shape).byte()
        labels = torch.from_numpy(self.labels[order.split][np.array(good, np.int64)])
        return Delivery(pixels, labels, bad)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loader": None, "_orders": []}


class _Desk(Dataset[Delivery]):
    """Takes orders in a worker."""

    def __init__(self, data: Loaded) -> None:
        self.data = data

    def __getitem__(self, order: Any) -> Delivery:
        return self.data._deliver(order)


def _left_to_the_parent(worker: int) -> None:
    """Whoever stops a whole group, as `timeout` and SLURM do, must not take the workers from a run that saves.

    The first signal is not heard; after it a SIGTERM is, with which the run ends a worker that hangs.
    """

    def listen(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    for number in ASKED:
        signal.signal(number, listen)


def _images(count: int) -> str:
    return f"{count} image" + "s" * (count != 1)


def _trainings() -> int:
    """How many processes torchrun has started on this machine."""
    started = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(started)) if started.isdecimal() else 1


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
