"""Helpers of the tests of export and predict: networks as after training, metadata, a malicious pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from coterie.models.metadata import Metadata

SHAPE = (1, 8, 8)


def lived_in(network: nn.Module) -> nn.Module:
    """Give batch-norm statistics and affine weights as after training, as initial ones hide mistakes."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            for tensor, centre, spread in (
                (module.running_mean, 0.0, 0.2),
                (module.running_var, 1.0, 0.2),
                (module.weight.data, 1.0, 0.2),
                (module.bias.data, 0.0, 0.2),
            ):
                tensor.copy_(centre + spread * (2 * torch.rand(tensor.shape, generator=generator) - 1))
    return network.eval()


def metadata(model: str, classes: int, shape: tuple[int, ...], **more: object) -> Metadata:
    channels, *size = shape
    names = [f"class {c}" for c in range(classes)]
    preparation = {
        "channels": channels,
        "size": size,
        "resize": max(size),
        "filter": "bilinear",
        "mean": [0.5] * channels,
        "std": [0.25] * channels,
    }
    return Metadata("peer1", {"name": model, "options": {}}, preparation, names, **more)  # type: ignore[arg-type]


class Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)
