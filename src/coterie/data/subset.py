"""Which training images of each class a run trains with, and which it holds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .sampler import Indices

Labels = NDArray[Any]
"""Class numbers (images,), or zeros and ones (images, classes) where an image may have several labels."""
LIMIT_STREAM, HELD_OUT_STREAM = 20261119, 20210202
"""Tell the draws of `limit_seed` and of `val_fraction` from others of the same seed."""


@dataclass(frozen=True)
class Subset:
    """The options of `Data` that choose among its training images."""

    limit: int | None = None
    val_fraction: float = 0.0
    limit_seed: int | Literal["seed"] | None = None
    val_limit: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("val_limit", self.val_limit)):
            if value is not None and value < 1:
                raise InputError(f"`{name}` must be at least 1 image per class, not {value}.")
        if not 0 <= self.val_fraction < 1:
            raise InputError(f"`val_fraction` is a fraction from 0 to below 1, not {self.val_fraction}.")
        if isinstance(self.limit_seed, str) and self.limit_seed != "seed":
            raise InputError(f"`limit_seed` is a whole number or the word seed, not '{self.limit_seed}'.")
        if isinstance(self.limit_seed, int) and self.limit_seed < 0:
            raise InputError(f"`limit_seed` must not be negative, not {self.limit_seed}.")
        if self.limit_seed is not None and self.limit is None:
            raise InputError("`limit_seed` draws the images of `limit`: give `limit` as well.")
        if self.val_limit is not None and self.limit is None:
            raise InputError("`val_limit` holds out images that `limit` leaves out: give `limit` as well.")
        if self.val_limit is not None and self.val_fraction:
            raise InputError("`val_limit` and `val_fraction` both hold images out: leave one away.")

    def choose(self, labels: Labels, classes: Sequence[str], seed: int | None) -> tuple[Indices, Indices]:
        """Return the images to train with and those to hold out.

        The choice depends on the labels and on `seed`, the number that `limit_seed` stands for, alone: every
        method, and without `limit_seed` every seed, is judged on the same images.
        """
        if self.limit_seed == "seed" and seed is None:
            raise InputError(
                "`limit_seed` is the word seed, which stands for the seed of a run: without a run give a number."
            )
        trained, held = [], []
        drawn_as = counted_class(labels)
        names = [*classes, "(none)"] if (drawn_as == len(classes)).any() else classes
        for c, name in enumerate(names):
            images = np.flatnonzero(drawn_as == c)
            if seed is not None:
                images = np.random.default_rng((seed, LIMIT_STREAM, c)).permutation(images)
            limited = np.sort(images[: self.limit])
            unused = images[len(limited) :]
            if len(unused) < (self.val_limit or 0):
                raise InputError(
                    f"`limit` {self.limit} leaves {len(unused)} training images of the class {name} unused, fewer "
                    f"than `val_limit` {self.val_limit}: lower one of them."
                )
            # One image is left to train with.
            count = min(round(self.val_fraction * len(limited)), max(0, len(limited) - 1))
            mixed = np.random.default_rng((HELD_OUT_STREAM, c)).permutation(limited) if count else limited
            held += [mixed[:count], unused[: self.val_limit or 0]]
            trained.append(mixed[count:])
        train, val = np.sort(np.concatenate(trained)), np.sort(np.concatenate(held))
        if self.val_fraction and not len(val):
            raise InputError(f"`val_fraction` {self.val_fraction} holds out no image of {len(train)}.")
        if not len(train):
            raise InputError("There are no images to train with.")
        return train, val


def counted_class(labels: Labels) -> Indices:
    """Return the class that each image counts for where some images of each class are chosen.

    Of several labels it is the rarest one, so that no class is left out by chance; an image without any counts for
    one class more.
    """
    if labels.ndim == 1:
        return labels
    counts = labels.sum(0, dtype=np.int64)
    rarity = np.where(labels, counts, len(labels) + 1)
    return np.where(labels.any(1), rarity.argmin(1), labels.shape[1])
