"""What a network costs: parameters, multiply-adds, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .cutting import evaluating


def parameters(module: nn.Module) -> int:
    """Parameters, shared ones counted once."""
    return sum(p.numel() for p in module.parameters())


def layer_macs(module: nn.Module, args: Sequence[Any], given: Mapping[str, Any], output: Any) -> int:
    """Multiply-adds of a call of a convolution, a linear layer or attention's projections; others count nothing.

    Of all images together: not every layer has them in front, some have windows or tokens there.
    """
    if isinstance(module, nn.MultiheadAttention):  # it does not call its layers, so that they are not seen
        result, *_ = output
        named = [given.get(name) for name in ("query", "key", "value")]
        tokens = [x.numel() for x in (*args[:3], *named, result) if isinstance(x, Tensor)]
        return int(module.embed_dim * sum(tokens))
    if not isinstance(output, Tensor):
        return 0
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return int(module.weight[0].numel() * output.numel())
    return int(module.in_features * output.numel()) if isinstance(module, nn.Linear) else 0


def macs(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Multiply-adds of one image of this shape; what runs once is counted once."""
    reference = next(module.parameters())
    image = torch.zeros(1, *shape, device=reference.device, dtype=reference.dtype)
    return sum(macs_by_layer(module, image).values())


def macs_by_layer(module: nn.Module, image: Tensor) -> dict[str, int]:
    """Multiply-adds per image of each layer by its name."""
    counted: dict[str, int] = {}

    def count(name: str, layer: nn.Module, args: Any, given: dict[str, Any], output: Any) -> None:
        if macs := layer_macs(layer, args, given, output) // len(image):
            counted[name] = counted.get(name, 0) + macs

    handles = [
        part.register_forward_hook(partial(count, name), with_kwargs=True) for name, part in module.named_modules()
    ]
    try:
        with evaluating(module):
            module(image.clone())
    finally:
        for handle in handles:
            handle.remove()
    return counted


def training_macs(method: nn.Module, shape: tuple[int, ...], views: int, classes: int) -> float:
    """Multiply-adds of one training step for each image of its batch.

    What is trained through counts three times, a backward pass being two forward passes; what only teaches
    (a mean teacher, a frozen network) counts once. Runs a real step of the method, without an optimiser:
    batch-norm statistics move.
    """
    counted, batch = 0.0, 2

    def count(layer: nn.Module, args: Any, given: dict[str, Any], output: Any) -> None:
        nonlocal counted
        if macs := layer_macs(layer, args, given, output):
            first = output if isinstance(output, Tensor) else output[0]
            counted += (3 if first.requires_grad else 1) * macs / batch

    handles = [part.register_forward_hook(count, with_kwargs=True) for part in method.modules()]
    device = next(method.parameters()).device
    inputs = [torch.randn(batch, *shape, device=device) for _ in range(views)]
    labels = torch.arange(batch, device=device) % classes
    try:
        method(inputs if views > 1 else inputs[0], labels, 0)
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
        order.reverse()  # nobody always follows the same one
    return {name: statistics.median(found) for name, found in times.items()}
