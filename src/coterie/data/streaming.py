"""Images read one by one: workers read ahead, decode each image once and make all its views."""

from __future__ import annotations

import copy
import os
import pickle
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import InputError, reason, warn
from .base import Data
from .batch import BatchRequest, LoadedBatch, SplitName
from .images import Unreadable
from .rng import draws
from .workers import WorkerLoader, prepare_worker

MOST_WORKERS = 256
"""More processes than any machine reads images with: such a number is a mistake."""
DRAWS_PER_VIEW, FLIP = 24, 22
"""22 for a resized crop, one for the flip, one for what comes after."""


class Streamed(Data):
    """A set whose images are read when they are needed. A subclass reads one image and makes views of it.

    Args:
        strict: fail when an image cannot be read, instead of skipping it with a warning.
        workers: processes that read ahead; by default one per core, at most 8. It changes no number.
    """

    largest_batch = 250  # large images: what is read ahead must fit into memory

    def __init__(self, strict: bool = False, workers: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        if workers is not None and not 0 <= workers <= MOST_WORKERS:
            raise InputError(f"`workers` must be from 0 to {MOST_WORKERS}, not {workers}.")
        self.strict = strict
        processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # of torchrun, on this machine
        self.workers = min(8, max(1, cores() // processes)) if workers is None else workers
        self._requests: list[BatchRequest] = []
        self._loader: WorkerLoader | None = None
        self._warned: set[str] = set()

    @property
    def flips_last(self) -> bool:
        """Whether a view that is not flipped yet lacks nothing else, so that a GPU may do it."""
        return self.augment.flips and not self.augment.operations()

    @abstractmethod
    def fetch(self, split: SplitName, image: int) -> Any:
        """Read and decode an image, or raise Unreadable."""

    @abstractmethod
    def plain(self, image: Any) -> Tensor:
        """Return a decoded image (C, H, W) as a test image is seen."""

    @abstractmethod
    def crop(self, image: Any, numbers: list[float]) -> Tensor:
        """Return a random crop (C, H, W) of a decoded image, as 22 numbers in [0, 1) say."""

    def view(self, image: Any, numbers: NDArray[np.float64]) -> Tensor:
        """Return an augmented view (C, H, W) of a decoded image, as these numbers say."""
        view = self.crop(image, numbers[:22].tolist()) if self.augment.crops else self.plain(image)
        if self.augment.flips and numbers[FLIP] < 0.5:
            view = view.flip(-1)
        return self.augment(view, float(numbers[23]))

    def load_batch(self, request: BatchRequest) -> LoadedBatch:
        return self._checked(self.read_batch(request), request)

    def load_batches(self, requests: list[BatchRequest]) -> Iterator[LoadedBatch]:
        if self.workers == 0:
            yield from super().load_batches(requests)
            return
        if self._loader is None:
            self._loader = self._start_workers()
        self._requests[:] = requests  # the loader's sampler: its workers go on from epoch to epoch
        try:
            batches = iter(self._loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # where workers are not forked
            warn(f"{self.title} cannot be sent to workers ({reason(error)}): its images are read in this process.")
            self.workers, self._loader = 0, None
            yield from super().load_batches(requests)
            return
        for request, batch in zip(requests, batches, strict=True):
            yield self._checked(batch, request)

    def _start_workers(self) -> WorkerLoader:
        self.augment.operations()  # made here, once, rather than in every worker
        loader = WorkerLoader(
            RequestDataset(copy.copy(self)),  # without the loader: a circle of references would stop slowly
            batch_size=None,  # a request is a batch already
            sampler=self._requests,
            num_workers=self.workers,
            persistent_workers=True,
            worker_init_fn=prepare_worker,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # or it would draw from the training's
        )
        # Before Python's own exit, which would wait for workers that leave a first signal to their parent.
        weakref.finalize(self, loader.end)
        return loader

    def read_batch(self, request: BatchRequest) -> LoadedBatch:
        """Read a batch in this process, perhaps a worker; images that cannot be read are left out and listed."""
        random = flips = None
        if request.count is not None:
            random = draws(request.seed, request.epoch, request.images, request.count, DRAWS_PER_VIEW)
            if not request.on_cpu and self.flips_last:
                flips = torch.from_numpy(random[..., FLIP] < 0.5)
                random[..., FLIP] = 1.0  # not here
        views: list[Tensor] = []  # (views, C, H, W) of each image
        readable: list[int] = []  # places in the request
        unreadable = {}
        for i, image in enumerate(request.images.tolist()):
            try:
                decoded = self.fetch(request.split, image)
                if random is None:
                    views.append(self.plain(decoded)[None])
                else:
                    views.append(torch.stack([self.view(decoded, numbers) for numbers in random[:, i]]))
                readable.append(i)
            except Unreadable as error:
                unreadable[self.name(request.split, image)] = str(error)
        # One memory format in and out: copying is then as fast as it can be.
        pixels = torch.stack(views, dim=1) if views else torch.empty(request.count or 1, 0, *self.shape).byte()
        labels = torch.from_numpy(self.labels[request.split][request.images[readable]])
        return LoadedBatch(pixels, labels, unreadable, flips=None if flips is None else flips[:, readable])

    def _checked(self, batch: LoadedBatch, request: BatchRequest) -> LoadedBatch:
        self.report_unreadable(batch.unreadable)
        if request.count is not None and len(batch.labels) < min(2, len(request.images)):  # batch-norm needs two
            raise InputError(
                f"Of a batch of {len(request.images)} images {len(batch.labels)} could be read: "
                "`coterie data inspect` lists the bad files."
            )
        return batch

    def report_unreadable(self, unreadable: dict[str, str]) -> None:
        """Warn of images that could not be read, once of each; with `strict`, stop."""
        new = {name: reason for name, reason in unreadable.items() if name not in self._warned}
        if not new:
            return
        names = "; ".join(f"{name} ({reason})" for name, reason in list(new.items())[:20])
        names += f"; and {len(new) - 20} more" if len(new) > 20 else ""
        count = f"{len(new)} image" + "s" * (len(new) != 1)
        if self.strict:
            raise InputError(f"{count} cannot be read: {names}. Without `strict` they are skipped.")
        self._warned |= set(new)
        total = f", {len(self._warned)} so far" if len(self._warned) > len(new) else ""
        warn(f"{count} cannot be read and will be skipped{total}: {names}.")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loader": None, "_requests": []}


class RequestDataset(Dataset[LoadedBatch]):
    """Read the requested batches in a worker."""

    def __init__(self, data: Streamed) -> None:
        self.data = data

    def __getitem__(self, request: Any) -> LoadedBatch:
        return self.data.read_batch(request)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
