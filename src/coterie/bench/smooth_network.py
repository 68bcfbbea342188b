"""A tiny network without kinks: rounding changes its results by little, so that bounds can be tight."""

from __future__ import annotations

from torch import Tensor, nn


class SmoothNet(nn.Module):
    """Three convolutions with SiLU, and a classifier. A ReLU would flip where rounding changes a sign.

    Args:
        num_classes: how many classes.
        in_channels: channels of an image.
        batch_norm: with batch-norm; without it, a batch may be divided among processes.
    """

    default_cut = "late"

    def __init__(self, num_classes: int = 10, in_channels: int = 3, batch_norm: bool = True) -> None:
        super().__init__()
        self.early = _stage(in_channels, 8, 1, batch_norm)
        self.middle = _stage(8, 16, 2, batch_norm)
        self.late = _stage(16, 16, 2, batch_norm)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pool(self.late(self.middle(self.early(images)))).flatten(1))
        return logits


def _stage(channels: int, width: int, stride: int, batch_norm: bool) -> nn.Sequential:
    norm = nn.BatchNorm2d(width) if batch_norm else nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=not batch_norm), norm, nn.SiLU())


def without_batch_norm(num_classes: int, in_channels: int) -> SmoothNet:
    return SmoothNet(num_classes, in_channels, batch_norm=False)
