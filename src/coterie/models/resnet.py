"""The paper's residual networks for small images: basic blocks, bottlenecks, wide and grouped ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from .init import initialise

__all__ = [
    "resnet8",
    "resnet14",
    "resnet20",
    "resnet26",
    "resnet32",
    "resnet44",
    "resnet56",
    "resnet110",
    "resnext29_2x64d",
    "wrn20_8",
]


class Residual(nn.Module):
    """Layers beside a shortcut: relu(body(x) + shortcut(x)); a 1x1 convolution where the shape changes."""

    def __init__(self, body: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.body(x).add_(self.shortcut(x)))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution without bias and its batch-norm."""
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


def basic(inputs: int, outputs: int, stride: int) -> Residual:
    """Build a block of two 3x3 convolutions."""
    layers = [*convolution(inputs, outputs, 3, stride), nn.ReLU(inplace=True), *convolution(outputs, outputs, 3)]
    return Residual(nn.Sequential(*layers), inputs, outputs, stride)


def bottleneck(inputs: int, outputs: int, stride: int, inner: float, groups: int = 1) -> Residual:
    """Build a block of 1x1 to `inner` times the output's width, 3x3 with the stride, and 1x1 convolutions."""
    width = int(inner * outputs)
    layers = [
        *convolution(inputs, width, 1),
        nn.ReLU(inplace=True),
        *convolution(width, width, 3, stride, groups),
        nn.ReLU(inplace=True),
    ]
    return Residual(nn.Sequential(*layers, *convolution(width, outputs, 1)), inputs, outputs, stride)


class ResNet(nn.Module):
    """A 3x3 stem, three stages at full, half and quarter resolution, global average pooling, a Linear."""

    default_cut = "stage3"

    def __init__(
        self,
        block: Callable[[int, int, int], Residual],
        blocks: int,
        stem: int,
        width: int,
        num_classes: int,
        in_channels: int,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolution(in_channels, stem, 3), nn.ReLU(inplace=True))
        self.stage1 = self._stage(block, stem, width, 1, blocks)
        self.stage2 = self._stage(block, width, 2 * width, 2, blocks)
        self.stage3 = self._stage(block, 2 * width, 4 * width, 2, blocks)
        self.fc = nn.Linear(4 * width, num_classes)
        initialise(self)

    @staticmethod
    def _stage(
        block: Callable[[int, int, int], Residual], inputs: int, width: int, stride: int, blocks: int
    ) -> nn.Sequential:
        return nn.Sequential(block(inputs, width, stride), *(block(width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage3(self.stage2(self.stage1(self.stem(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def _resnet(depth: int) -> Callable[..., ResNet]:
    def make(num_classes: int = 10, in_channels: int = 3) -> ResNet:
        return ResNet(basic, (depth - 2) // 6, 16, 16, num_classes, in_channels)

    make.__name__ = f"resnet{depth}"
    make.__doc__ = f"ResNet-{depth} for small images: {(depth - 2) // 6} basic blocks per stage."
    return make


resnet8, resnet14, resnet20, resnet26, resnet32, resnet44, resnet56 = map(_resnet, (8, 14, 20, 26, 32, 44, 56))


def resnet110(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """ResNet-110 as the compared code has it: 12 bottlenecks per stage, four times as wide outside."""
    return ResNet(partial(bottleneck, inner=1 / 4), 12, 16, 64, num_classes, in_channels)


def wrn20_8(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """What the compared code calls wide_resnet20_8: resnet110's form, 2 bottlenecks per stage, eight times
    as wide inside. It is not Zagoruyko's network of that name.
    """
    return ResNet(partial(bottleneck, inner=2), 2, 16, 64, num_classes, in_channels)


def resnext29_2x64d(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """ResNeXt-29: 3 bottlenecks per stage whose 3x3 convolutions have 2 groups of 64 channels, then 128, 256."""
    return ResNet(partial(bottleneck, inner=1 / 2, groups=2), 3, 64, 256, num_classes, in_channels)
