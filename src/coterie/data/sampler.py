"""Which images each step of an epoch takes: their order, the batches, and the parts that a process computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Piece(NamedTuple):
    """What one process computes at once: images, how many of them count, and the weight of their loss."""

    images: Indices
    size: int
    weight: float


class StepBatch(NamedTuple):
    """The images of one optimiser step: those of all processes, and the pieces of this process."""

    images: Indices
    pieces: list[Piece]


@dataclass(frozen=True)
class EpochSampler:
    """Divide the training images of every epoch among steps, processes and accumulated pieces.

    Args:
        size: how many training images there are.
        batch: images per optimiser step, of all processes together.
        seed: determines, with the epoch, the order of the images.
        world_size: how many processes train together.
        rank: which of them this one is.
        accumulate: compute a batch in at most this many pieces.
    """

    size: int
    batch: int
    seed: int = 0
    world_size: int = 1
    rank: int = 0
    accumulate: int = 1

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return len(batch_slices(self.size, self.batch))

    def steps(self, epoch: int, start: int = 0) -> list[StepBatch]:
        """Return the steps of an epoch from step `start` of it on."""
        order = epoch_order(self.seed, epoch, self.size)
        batches = [order[part] for part in batch_slices(self.size, self.batch)[start:]]
        return [
            StepBatch(batch, split_batch(batch, self.world_size, self.rank, self.accumulate)) for batch in batches
        ]


def epoch_order(seed: int, epoch: int, size: int) -> Indices:
    """Return the order in which an epoch visits its images."""
    return np.random.default_rng((seed, epoch)).permutation(size)


def batch_slices(size: int, batch: int) -> list[slice]:
    """Cut an epoch into batches; a single last image joins the batch before it, as batch-norm needs two."""
    starts = list(range(0, size, batch))
    if len(starts) > 1 and size - starts[-1] == 1:
        starts.pop()
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], size], strict=True)]


def split_batch(batch: Indices, world_size: int = 1, rank: int = 0, accumulate: int = 1) -> list[Piece]:
    """Return the share of a process in a batch, in at most `accumulate` pieces.

    The weights make the average over all processes, which is what DDP takes, the mean over the whole batch.
    Batch-norm needs two images: where there are not enough, the last processes compute a piece of weight 0, as all
    processes must take part in the exchange of gradients.
    """
    shares = _split(batch, world_size)
    if rank >= len(shares):
        return [Piece(batch[:2], 0, 0.0)]
    parts = _split(shares[rank], accumulate)
    return [Piece(part, len(part), len(part) * world_size / len(batch)) for part in parts]


def rank_slice(size: int, world_size: int, rank: int) -> slice:
    """Return the part of a list that a process takes: no item twice, none left out."""
    return slice(rank * size // world_size, (rank + 1) * size // world_size)


def _split(images: Indices, count: int) -> list[Indices]:
    """Return at most `count` parts of nearly equal size, each of two images or more."""
    return list(np.array_split(images, max(1, min(count, len(images) // 2))))
