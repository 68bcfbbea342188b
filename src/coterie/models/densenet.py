"""The paper's DenseNet-BC for small images: each layer sees all that came before it in its block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .init import initialise

__all__ = ["densenet40_12"]


def preactivated(inputs: int, outputs: int, size: int) -> list[nn.Module]:
    """Return batch-norm, ReLU and convolution."""
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv]


class DenseLayer(nn.Sequential):
    """A 1x1 bottleneck of four times the growth and a 3x3 convolution, appended to what came in."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__(*preactivated(inputs, 4 * growth, 1), *preactivated(4 * growth, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, super().forward(x)], 1)


class DenseNet(nn.Module):
    """A 3x3 stem, three dense blocks, between them transitions that halve width and resolution."""

    default_cut = "block3"

    def __init__(self, growth: int, layers: int, num_classes: int, in_channels: int) -> None:
        super().__init__()
        width = 2 * growth
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.block1, width = self._block(width, growth, layers)
        self.transition1, width = self._transition(width)
        self.block2, width = self._block(width, growth, layers)
        self.transition2, width = self._transition(width)
        self.block3, width = self._block(width, growth, layers)
        self.norm = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.fc = nn.Linear(width, num_classes)
        initialise(self)

    @staticmethod
    def _block(inputs: int, growth: int, layers: int) -> tuple[nn.Sequential, int]:
        parts = [DenseLayer(inputs + i * growth, growth) for i in range(layers)]
        return nn.Sequential(*parts), inputs + layers * growth

    @staticmethod
    def _transition(inputs: int) -> tuple[nn.Sequential, int]:
        return nn.Sequential(*preactivated(inputs, inputs // 2, 1), nn.AvgPool2d(2)), inputs // 2

    def forward(self, x: Tensor) -> Tensor:
        x = self.transition1(self.block1(self.stem(x)))
        x = self.transition2(self.block2(x))
        x = self.norm(self.block3(x))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def densenet40_12(num_classes: int = 10, in_channels: int = 3) -> DenseNet:
    """DenseNet-BC of 40 layers, growth 12: three blocks of 6 bottleneck layers, compression 0.5."""
    return DenseNet(12, 6, num_classes, in_channels)
