"""What a network costs: parameters and multiply-adds."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .cutting import evaluating


def parameters(module: nn.Module) -> int:
    """Parameters, shared ones counted once."""
    return sum(p.numel() for p in module.parameters())


def layer_macs(module: nn.Module, output: Tensor) -> int:
    """Multiply-adds per image of a convolution or linear layer; others count nothing, as is usual."""
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return int(module.weight[0].numel() * output[0].numel())
    if isinstance(module, nn.Linear):
        return int(module.in_features * output[0].numel())
    return 0


def macs(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Multiply-adds of one image of this shape; what runs once is counted once."""
    reference = next(module.parameters())
    image = torch.zeros(1, *shape, device=reference.device, dtype=reference.dtype)
    return sum(macs_by_layer(module, image).values())


def macs_by_layer(module: nn.Module, image: Tensor) -> dict[str, int]:
    """Multiply-adds per image of each layer by its name."""
    counted: dict[str, int] = {}

    def count(name: str, layer: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and (macs := layer_macs(layer, output)):
            counted[name] = counted.get(name, 0) + macs

    handles = [part.register_forward_hook(partial(count, name)) for name, part in module.named_modules()]
    try:
        with evaluating(module):
            module(image.clone())
    finally:
        for handle in handles:
            handle.remove()
    return counted
