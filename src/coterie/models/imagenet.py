"""The paper's network for ImageNet, from torchvision."""

from __future__ import annotations

from torch import nn

from .external import from_torchvision

__all__ = ["resnet18"]


def resnet18(num_classes: int = 1000, in_channels: int = 3, small_stem: bool = False) -> nn.Module:
    """torchvision's ResNet-18, cut before layer3 as in the paper (the last two stages per peer)."""
    network = from_torchvision("resnet18", num_classes, in_channels, None, small_stem)
    network.default_cut = "layer3"  # type: ignore[assignment]
    network.default_cfg = {"input_size": (3, 32, 32) if small_stem else (3, 224, 224)}  # type: ignore[assignment]
    return network
