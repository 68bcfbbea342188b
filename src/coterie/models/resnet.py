"""The CIFAR ResNets of He et al. (2016): resnet8 to resnet56, the paper's resnet32 among them."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["resnet8", "resnet14", "resnet20", "resnet26", "resnet32", "resnet44", "resnet56"]


def initialise(network: nn.Module) -> None:
    """Kaiming normal (fan out) for convolutions, 1 and 0 for batch-norm."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A 3x3 stem, three stages at full, half and quarter resolution, global average pooling, a Linear."""

    default_cut = "stage3"

    def __init__(self, blocks: int, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.stage1 = self._stage(16, 16, 1, blocks)
        self.stage2 = self._stage(16, 32, 2, blocks)
        self.stage3 = self._stage(32, 64, 2, blocks)
        self.fc = nn.Linear(64, num_classes)
        initialise(self)

    @staticmethod
    def _stage(inputs: int, width: int, stride: int, blocks: int) -> nn.Sequential:
        first = BasicBlock(inputs, width, stride)
        return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(x)))
        x = self.stage3(self.stage2(self.stage1(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def _resnet(depth: int) -> Callable[..., ResNet]:
    def make(num_classes: int = 10, in_channels: int = 3) -> ResNet:
        return ResNet((depth - 2) // 6, num_classes, in_channels)

    make.__name__ = f"resnet{depth}"
    make.__doc__ = f"ResNet-{depth} for small images: {(depth - 2) // 6} basic blocks per stage."
    return make


resnet8, resnet14, resnet20, resnet26, resnet32, resnet44, resnet56 = map(_resnet, (8, 14, 20, 26, 32, 44, 56))
