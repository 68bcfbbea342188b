"""Augmentations: a list of names, each applied to every view of every image by draws of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compat import import_torchvision
from ..errors import InputError

Augmentation = Literal["crop", "flip", "randaugment", "trivialaugment", "erase"]
Operation = Callable[[Tensor], Tensor]


@contextmanager
def fork_rng(seed: int) -> Iterator[None]:
    """Torch draws from this seed inside, and goes on outside as if nothing had been drawn."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


class Augment:
    """What happens to the pixels of a view after it was cropped and flipped, in the order of the list.

    `crop` and `flip` belong to the data set, which knows the shape of its images; they always come first.
    """

    def __init__(self, names: Sequence[Augmentation], mean: Sequence[float]) -> None:
        if len(set(names)) < len(names):
            raise InputError(f"--data.augment names one thing twice: {', '.join(names)}.")
        self.names, self.mean = list(names), list(mean)
        self.crops, self.flips = "crop" in names, "flip" in names
        self._operations: list[Operation] | None = None

    @property
    def beyond(self) -> bool:
        """Whether there is more than crop and flip."""
        return bool(set(self.names) - {"crop", "flip"})

    def __call__(self, view: Tensor, draw: float) -> Tensor:
        """A view (C, H, W) in uint8, changed as `draw`, a number in [0, 1), says."""
        operations = self.prepare()
        if operations:
            with fork_rng(int(draw * 2**53)):
                for operation in operations:
                    view = operation(view)
        return view

    def each(self, views: NDArray[np.uint8], draws: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The same for many views (..., C, H, W), each with a draw of its own."""
        if not self.beyond:
            return views
        flat = views.reshape(-1, *views.shape[-3:])
        changed = [self(torch.from_numpy(v), d).numpy() for v, d in zip(flat, draws.ravel(), strict=True)]
        return np.stack(changed).reshape(views.shape)

    def prepare(self) -> list[Operation]:
        """Make the operations, if they are not yet: torchvision is imported only where it is needed."""
        if not self.beyond:
            return []
        if self._operations is None:
            v2 = import_torchvision("torchvision.transforms.v2")
            makers: dict[str, Callable[[], Operation]] = {
                "randaugment": v2.RandAugment,
                "trivialaugment": v2.TrivialAugmentWide,
                # The mean colour, which is 0 after normalisation: what Zhong et al. erase with in practice.
                "erase": lambda: v2.RandomErasing(value=[float(round(255 * m)) for m in self.mean]),
            }
            self._operations = [makers[name]() for name in self.names if name in makers]
        return self._operations

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_operations": None}


def resized_crop(width: int, height: int, numbers: Sequence[float]) -> tuple[int, int, int, int]:
    """The box (left, top, right, bottom) of ImageNet's random resized crop, from 22 numbers in [0, 1).

    Of the area 8 to 100 %, of the aspect ratio 3/4 to 4/3 (evenly in its logarithm); ten attempts, then the
    largest centred box with an allowed ratio. These are torchvision's rules.
    """
    low, high = np.log(3 / 4), np.log(4 / 3)
    for area_draw, ratio_draw in zip(numbers[:10], numbers[10:20], strict=True):
        area = width * height * (0.08 + 0.92 * area_draw)
        ratio = np.exp(low + (high - low) * ratio_draw)
        w, h = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(numbers[20] * (width - w + 1)), int(numbers[21] * (height - h + 1))
            return left, top, left + w, top + h
    w, h = width, height
    if width / height < 3 / 4:
        h = round(width / (3 / 4))
    elif width / height > 4 / 3:
        w = round(height * (4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
