"""What a network costs: parameters, multiply-adds, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
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
    counted = 0

    def count(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal counted
        if isinstance(output, Tensor):
            counted += layer_macs(layer, output)

    handles = [part.register_forward_hook(count) for part in module.modules()]
    reference = next(module.parameters())
    try:
        with evaluating(module):
            module(torch.zeros(1, *shape, device=reference.device, dtype=reference.dtype))
    finally:
        for handle in handles:
            handle.remove()
    return counted


def interleaved(runs: dict[str, Callable[[], object]], seconds: float = 1.0) -> dict[str, float]:
    """Median seconds of one call of each, called in turns: what slows the machine down slows all alike.

    Takes about `seconds` per entry, after a warm-up.
    """
    for run in runs.values():
        for _ in range(3):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    started = time.perf_counter()
    order = list(runs.items())
    while time.perf_counter() - started < seconds * len(runs) or len(next(iter(times.values()))) < 5:
        for name, run in order:
            before = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - before)
        order = order[1:] + order[:1]  # nobody always follows the same one
    return {name: statistics.median(found) for name, found in times.items()}
