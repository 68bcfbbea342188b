"""Augmentations: a list of names, each applied to every view of every image by draws of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compat import import_torchvision
from ..errors import InputError

Augmentation = Literal["crop", "flip", "randaugment", "trivialaugment", "erase"]
Operation = Callable[[Tensor], Tensor]


class Augment:
    """Change the pixels of a view after it was cropped and flipped, in the order of the list.

    `crop` and `flip` belong to the data set, which knows the shape of its images; they always come first.
    """

    def __init__(self, names: Sequence[Augmentation], mean: Sequence[float]) -> None:
        if len(set(names)) < len(names):
            raise InputError(f"`augment` names one thing twice: {', '.join(names)}.")
        self.names, self.mean = list(names), list(mean)
        self.crops, self.flips = "crop" in names, "flip" in names

    def __call__(self, view: Tensor, draw: float) -> Tensor:
        """Change a view (C, H, W) in uint8 as `draw`, a number in [0, 1), says."""
        if operations := self.operations():
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(int(draw * 2**53))
                for operation in operations:
                    view = operation(view)
        return view

    def each(self, views: Tensor, draws: NDArray[np.float64]) -> Tensor:
        """Change many views (..., C, H, W), each by a draw of its own."""
        changed = [self(view, draw) for view, draw in zip(views.flatten(0, -4), draws.ravel(), strict=True)]
        return torch.stack(changed).view(views.shape)

    def operations(self) -> list[Operation]:
        """Return the operations beyond crop and flip."""
        return [_operation(name, tuple(self.mean)) for name in self.names if name not in ("crop", "flip")]


@cache
def _operation(name: str, mean: tuple[float, ...]) -> Operation:
    v2 = import_torchvision("torchvision.transforms.v2")
    if name == "erase":
        # The mean colour, which is 0 after normalisation: what Zhong et al. erase with in practice.
        return v2.RandomErasing(value=[float(round(255 * m)) for m in mean])
    return {"randaugment": v2.RandAugment, "trivialaugment": v2.TrivialAugmentWide}[name]()


def resized_crop(width: int, height: int, numbers: Sequence[float]) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) of ImageNet's random resized crop, from 22 numbers in [0, 1).

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
