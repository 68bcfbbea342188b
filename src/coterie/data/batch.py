"""A batch on its way: requested by image numbers, loaded as uint8 pixels, normalised on the device that trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from .sampler import Indices

SplitName = Literal["train", "val", "test"]


@dataclass
class BatchRequest:
    """Images of a split by number: `count` augmented views of each or, without a count, the images as they are."""

    split: SplitName
    images: Indices
    count: int | None = None
    seed: int = 0
    epoch: int = 0


@dataclass
class LoadedBatch:
    """Pixels (views, images, C, H, W), the labels, and the images that could not be read, each with the reason.

    Pixels are uint8, a quarter of the bytes; those of a `Dataset` that makes its own views are floats.
    """

    pixels: Tensor
    labels: Tensor
    unreadable: dict[str, str] = field(default_factory=dict)

    def pin_memory(self) -> LoadedBatch:
        """Pin the tensors, as a `DataLoader` asks for."""
        return LoadedBatch(self.pixels.pin_memory(), self.labels.pin_memory(), self.unreadable)


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy to a device, through pinned memory: any other copy to a GPU waits for the steps before it."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def normalise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract mean and divide by std, both of values in [0, 1]: (..., C, H, W) uint8 to float32."""
    centre, deviation = (_per_channel(tuple(values), pixels.device) for values in (mean, std))
    # A new layout: grey images as NumPy leaves them can look channels-last, which not every network takes.
    whole = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device).copy_(pixels)
    return whole.sub_(centre).div_(deviation)


@cache  # copying numbers to a GPU waits for it: once, not with every batch
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return 255.0 * torch.tensor(values, device=device).view(-1, 1, 1)
