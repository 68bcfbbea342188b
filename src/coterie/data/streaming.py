"""Images read one by one: workers read ahead, decode each image once and make all its views."""

from __future__ import annotations

import copy
import os
import signal
import weakref
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
class BatchRequest:
    """What a worker is asked for: views of a batch of images, or, without a count, the images as they are."""

    split: Split
    images: Indices
    count: int | None = None
    seed: int = 0
    epoch: int = 0


@dataclass
class LoadedBatch:
    """What it gives: (views, images, C, H, W), the labels, and what could not be read and why.

    Pixels travel in uint8, a quarter of the bytes; those of a `Dataset` that made its own views are floats.
    """

    pixels: Tensor
    labels: Tensor
    unreadable: dict[str, str]

    def pin_memory(self) -> LoadedBatch:
        return LoadedBatch(self.pixels.pin_memory(), self.labels.pin_memory(), self.unreadable)


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
        self._requests: list[BatchRequest] = []
        self._loader: DataLoader[Any] | None = None
        self._warned: set[str] = set()

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
        return self._unpacked(self._load_batch(BatchRequest("train", images, count, seed, epoch)), len(images))

    def stream(
        self,
        batches: Iterable[Indices],
        count: int,
        seed: int,
        epoch: int,
        device: torch.device | str = "cpu",
    ) -> Iterator[tuple[list[Tensor], Tensor]]:
        requests = [BatchRequest("train", images, count, seed, epoch) for images in batches]
        for request, batch in zip(requests, self._load_all(requests), strict=True):
            yield self._unpacked(batch, len(request.images), device)

    def test_batches(
        self, size: int, part: slice = slice(None), split: Split = "test"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        chosen = np.arange(len(self.labels[split]))[part]
        size = min(size, 250)  # large images: what is read ahead must fit into memory
        requests = [BatchRequest(split, chosen[start : start + size]) for start in range(0, len(chosen), size)]
        for batch in self._load_all(requests):
            self._warn_unreadable(batch.unreadable)
            if len(batch.labels):
                yield self._normal(batch.pixels)[0], batch.labels

    def _unpacked(
        self, batch: LoadedBatch, asked: int, device: torch.device | str = "cpu"
    ) -> tuple[list[Tensor], Tensor]:
        self._warn_unreadable(batch.unreadable)
        if len(batch.labels) < min(2, asked):  # batch-norm needs two
            raise InputError(
                f"Of a batch of {asked} images {len(batch.labels)} could be read: "
                "`coterie data inspect` lists the bad files."
            )
        pixels = to_device(batch.pixels, device)  # a quarter of the bytes: normalised over there
        return [self._normal(view) for view in pixels], to_device(batch.labels, device)

    def _normal(self, pixels: Tensor) -> Tensor:
        return normalise(pixels, self.mean, self.std) if pixels.dtype == torch.uint8 else pixels

    def _warn_unreadable(self, unreadable: dict[str, str]) -> None:
        """Warn of images that could not be read, of each once; or stop, if that was asked for."""
        new = {name: reason for name, reason in unreadable.items() if name not in self._warned}
        if not new:
            return
        listed = "; ".join(f"{name} ({reason})" for name, reason in list(new.items())[:20])
        listed += f"; and {len(new) - 20} more" if len(new) > 20 else ""
        if self.strict:
            raise InputError(
                f"{_images(len(new))} cannot be read: {listed}. Without --data.strict they are skipped."
            )
        self._warned |= set(new)
        total = f", {len(self._warned)} so far" if len(self._warned) > len(new) else ""
        warn(f"{_images(len(new))} cannot be read and will be skipped{total}: {listed}.")

    def _load_all(self, requests: list[BatchRequest]) -> Iterator[LoadedBatch]:
        if self.workers == 0:
            yield from map(self._load_batch, requests)
            return
        if self._loader is None:
            self.augment.prepare()  # here, once, rather than in every worker
            self._loader = DataLoader(
                RequestDataset(copy.copy(self)),  # without the loader: a circle of references would stop slowly
                batch_size=None,  # a request is a batch already
                sampler=self._requests,
                num_workers=self.workers,
                persistent_workers=True,
                worker_init_fn=_left_to_the_parent,
                pin_memory=torch.cuda.is_available(),
                generator=torch.Generator(),  # or it would draw from the training's
            )
            # Before Python's own exit, which would wait for workers that leave a first signal to their parent.
            weakref.finalize(self, _end_workers, self._loader)
        self._requests[:] = requests  # the loader's sampler: its workers go on from epoch to epoch
        yield from self._loader

    def _load_batch(self, request: BatchRequest) -> LoadedBatch:
        random = None
        if request.count is not None:
            random = draws(request.seed, request.epoch, request.images, request.count, NUMBERS)
        views: list[Tensor] = []  # (views, C, H, W) of each image
        readable, unreadable = [], {}
        for i, image in enumerate(request.images.tolist()):
            try:
                decoded = self.fetch(request.split, image)
                if random is None:
                    views.append(self.plain(decoded)[None])
                else:
                    views.append(torch.stack([self.view(decoded, numbers) for numbers in random[:, i]]))
                readable.append(image)
            except Unreadable as error:
                unreadable[self.name(request.split, image)] = str(error)
        # One memory format in and out: copying is then as fast as it can be.
        pixels = torch.stack(views, dim=1) if views else torch.empty(request.count or 1, 0, *self.shape).byte()
        labels = torch.from_numpy(self.labels[request.split][np.array(readable, np.int64)])
        return LoadedBatch(pixels, labels, unreadable)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loader": None, "_requests": []}


class RequestDataset(Dataset[LoadedBatch]):
    """Load the requested batches in a worker."""

    def __init__(self, data: Loaded) -> None:
        self.data = data

    def __getitem__(self, request: Any) -> LoadedBatch:
        return self.data._load_batch(request)


def _end_workers(loader: DataLoader[Any]) -> None:
    """End the workers of a loader and wait for them."""
    iterator = loader._iterator
    if iterator is not None:
        iterator._shutdown_workers()  # type: ignore[attr-defined]


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
