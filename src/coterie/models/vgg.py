"""The paper's VGG-16 for small images: five blocks of 3x3 convolutions and a head of three Linears."""

from __future__ import annotations

from torch import Tensor, nn

from .init import initialise

__all__ = ["vgg16"]

BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Width and number of convolutions of each block."""


class VGG(nn.Module):
    """Five blocks, each ending in a max-pool; the pooled output of the last is the feature."""

    default_cut = "block5"
    feature_module = "head"  # what enters the head, and not the classifier inside it

    def __init__(self, num_classes: int, in_channels: int, dropout: float) -> None:
        super().__init__()
        inputs = in_channels
        for i, (width, depth) in enumerate(BLOCKS, 1):
            self.add_module(f"block{i}", self._block(inputs, width, depth))
            inputs = width
        hidden = [
            layer for _ in range(2) for layer in (nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Dropout(dropout))
        ]
        self.head = nn.Sequential(*hidden, nn.Linear(512, num_classes))
        initialise(self)

    @staticmethod
    def _block(inputs: int, width: int, depth: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i in range(depth):
            conv = nn.Conv2d(inputs if i == 0 else width, width, 3, padding=1)
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        # Rounding up changes nothing at 32x32 and lets images of less than 32 pixels pass.
        return nn.Sequential(*layers, nn.MaxPool2d(2, ceil_mode=True))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, len(BLOCKS) + 1):
            x = self.get_submodule(f"block{i}")(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def vgg16(num_classes: int = 10, in_channels: int = 3, dropout: float = 0.0) -> VGG:
    """VGG-16 with batch-norm for small images, a head of 512-512-512-classes."""
    return VGG(num_classes, in_channels, dropout)
