"""A batch on its way: requested by image numbers, loaded as uint8 pixels, cut and normalised on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from .device import to_device
from .sampler import Indices

SplitName = Literal["train", "val", "test"]
CPU = torch.device("cpu")


@dataclass
class BatchRequest:
    """Images of a split by number: `count` augmented views of each or, without a count, the images as they are.

    `device` is where they will be used. What it can do exactly is left to it; a CPU is given finished views.
    """

    split: SplitName
    images: Indices
    count: int | None = None
    seed: int = 0
    epoch: int = 0
    device: torch.device | str = "cpu"

    @property
    def on_cpu(self) -> bool:
        return torch.device(self.device).type == "cpu"


@dataclass
class Crops:
    """The views of a batch: where each is cut out of its image, inside a black border of `padding` pixels.

    `places` (3, views, images) holds the top row, the left column, and 1 for a view that is flipped.
    """

    places: Tensor
    padding: int

    def to(self, device: torch.device | str) -> Crops:
        return Crops(to_device(self.places, device), self.padding)

    def cut(self, images: Tensor) -> Tensor:
        """Return the views (views, images, C, H, W) of images (images, C, H, W) on the same device."""
        count, channels, height, width = images.shape
        top, left, flipped = self.places.unsqueeze(-1)
        row, column = (torch.arange(side, device=images.device) for side in (height, width))
        columns = left + torch.where(flipped.bool(), width - 1 - column, column)
        # Of every pixel of every view in its padded image, row after row: one gather cuts them all.
        positions = (top + row).unsqueeze(-1) * (width + 2 * self.padding) + columns.unsqueeze(-2)
        positions = positions.flatten(2).unsqueeze(2).expand(-1, -1, channels, -1)
        # Black before normalisation, as torchvision's RandomCrop pads.
        padded = torch.nn.functional.pad(images, (self.padding,) * 4).flatten(2)
        views = padded.expand(len(positions), -1, -1, -1).gather(3, positions)
        return views.view(len(views), count, channels, height, width)


@dataclass
class LoadedBatch:
    """Pixels (views, images, C, H, W), the labels, and the images that could not be read, each with the reason.

    Pixels are uint8, a quarter of the bytes; those of a `Dataset` that makes its own views are floats. With
    `crops` they are whole images (1, images, C, H, W), from which the device cuts the views.
    `flips` (views, images) says which views the device has to flip.
    """

    pixels: Tensor
    labels: Tensor
    unreadable: dict[str, str] = field(default_factory=dict)
    crops: Crops | None = None
    flips: Tensor | None = None

    def views_on(self, device: torch.device | str) -> Tensor:
        """Return the views (views, images, C, H, W) on a device."""
        pixels = to_device(self.pixels, device)
        if self.crops is not None:
            pixels = self.crops.to(device).cut(pixels[0])
        if self.flips is not None:
            flips = to_device(self.flips, device)[..., None, None, None]
            pixels = torch.where(flips, pixels.flip(-1), pixels)
        return pixels

    def pin_memory(self) -> LoadedBatch:
        """Pin the tensors, as a `DataLoader` asks for."""
        return replace(self, pixels=self.pixels.pin_memory(), labels=self.labels.pin_memory())


def normalise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract mean and divide by std, both of values in [0, 1]: (..., C, H, W) uint8 to float32."""
    centre, deviation = (_per_channel(tuple(values), pixels.device) for values in (mean, std))
    # A new layout: grey images as NumPy leaves them can look channels-last, which not every network takes.
    whole = torch.empty(pixels.shape, dtype=torch.float32, device=pixels.device).copy_(pixels)
    return whole.sub_(centre).div_(deviation)


@cache  # copying numbers to a GPU waits for it: once, not with every batch
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return 255.0 * torch.tensor(values, device=device).view(-1, 1, 1)
