"""The contract of a data set: what training and evaluation ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Data:
    """Labelled images in a training and a test split. Making one is cheap; `load` reads it.

    After `load` it has:
        classes: the names of the classes.
        shape: (channels, height, width) of a view.
        train_size: the number of training images.
        test_size: the number of test images.
    """

    classes: list[str]
    shape: tuple[int, int, int]
    train_size: int
    test_size: int

    def load(self) -> None:
        """Read the files; bad ones raise an InputError that names them."""
        raise NotImplementedError

    def views(self, images: NDArray[np.int64], count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        """`count` independently augmented views of these training images, and their labels."""
        raise NotImplementedError

    def stream(
        self, batches: Sequence[NDArray[np.int64]], count: int, seed: int, epoch: int
    ) -> Iterator[tuple[list[Tensor], Tensor]]:
        """`views` of one batch after the other; where it is slow, a set prepares the next ones meanwhile."""
        for images in batches:
            yield self.views(images, count, seed, epoch)

    def test_batches(self, size: int, part: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """The test images, or a part of them, not augmented, with their labels."""
        raise NotImplementedError
