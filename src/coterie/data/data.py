"""The contract of a data set: what training and evaluation ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Data:
    """Labelled images in a training and a test split. Making one is cheap; `load` reads it.

    After `load` it has:
        classes: the names of the classes.
        shape: (channels, height, width) of a view.
        train_size: the number of training images.
    """

    classes: list[str]
    shape: tuple[int, int, int]
    train_size: int

    def load(self) -> None:
        """Read the files; bad ones raise an InputError that names them."""
        raise NotImplementedError

    def views(self, images: NDArray[np.int64], count: int, seed: int, epoch: int) -> tuple[list[Tensor], Tensor]:
        """`count` independently augmented views of these training images, and their labels."""
        raise NotImplementedError

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The test images, not augmented, with their labels."""
        raise NotImplementedError

    def preprocessing(self) -> dict[str, Any]:
        """How a picture becomes an input, for whoever deploys the network.

        {channels: 1 or 3, size: [height, width], resize: the shorter side's length before a centre crop to
        `size` (None: resize straight to `size`), mean and std: per channel, of values from 0 to 1}.
        """
        raise NotImplementedError
