"""Section `floor`: how near a step is to the time of its convolutions alone, each in its best memory layout."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import models
from .size import Size
from .subjects import Stepper, device, made
from .timing import once, times

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
REPEATS = 2

Floor = dict[tuple["Convolution", str, str], float]
"""Seconds by convolution, layout and kind."""


@dataclass(frozen=True)
class Convolution:
    """A convolution as a network calls it; `first`: nobody asks for the gradient of its input."""

    input: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    groups: int
    first: bool


def convolutions(network: nn.Module, images: Tensor) -> Counter[Convolution]:
    """Every convolution of a forward pass, equal ones counted."""
    found: Counter[Convolution] = Counter()

    def note(layer: nn.Conv2d, args: tuple[Tensor, ...], output: Tensor) -> None:
        called = (tuple(args[0].shape), tuple(layer.weight.shape), layer.stride, layer.padding, layer.dilation)
        found[Convolution(*called, layer.groups, first=not args[0].requires_grad)] += 1

    handles = [part.register_forward_hook(note) for part in network.modules() if isinstance(part, nn.Conv2d)]
    try:
        network(images)
    finally:
        for handle in handles:
            handle.remove()
    return found


def timed(convolution: Convolution, layout: torch.memory_format) -> tuple[float, float]:
    """Seconds of the forward pass alone, and of forward and backward: the least of a few calls."""
    where = device()
    x, w = (
        torch.randn(shape, device=where).contiguous(memory_format=layout)
        for shape in (convolution.input, convolution.weight)
    )
    call = (None, convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
    with torch.no_grad():
        gradient = torch.randn_like(F.conv2d(x, w, *call))
        forward = min(once(lambda: F.conv2d(x, w, *call)) for _ in range(REPEATS))
    wanted = [w] if convolution.first else [x, w]
    for tensor in wanted:
        tensor.requires_grad_()
    both = min(once(lambda: torch.autograd.grad(F.conv2d(x, w, *call), wanted, gradient)) for _ in range(REPEATS))
    return forward, both


def swept(network: Mapping[Convolution, int]) -> Floor:
    """Every convolution once in each layout."""
    found: Floor = {}
    for convolution in network:
        for layout, format in LAYOUTS.items():
            forward, both = timed(convolution, format)
            found[convolution, layout, "forward"], found[convolution, layout, "both"] = forward, both
    return found


def measure(size: Size) -> dict[str, Any]:
    """The floor of PCL is m forward and backward passes and m forward passes; of the plain network one pass."""
    torch.manual_seed(0)
    steppers = {row: Stepper(made(row, size), size.batch, size) for row in ("PCL", "Baseline")}
    plain = models.factory(size.model, size.classes, size.shape[0])().to(device())
    network = convolutions(plain, torch.randn(size.batch, *size.shape, device=device()))
    sweeps: list[Floor] = []
    seconds: dict[str, list[float]] = {row: [] for row in steppers}
    for turn in range(size.rounds + 1):
        before = {row: once(step) for row, step in steppers.items()}
        sweep = swept(network)
        after = {row: once(step) for row, step in steppers.items()}
        if turn:  # the first round warms up
            sweeps.append(sweep)
            for row in steppers:
                seconds[row].append((before[row] + after[row]) / 2)
    # A sum of medians: now and then a call is disturbed, and a sum of many nearly always holds one that was.
    best = {
        (convolution, kind): min(_median(sweeps, convolution, layout, kind) for layout in LAYOUTS)
        for convolution in network
        for kind in ("forward", "both")
    }
    forward, both = (
        sum(n * best[convolution, kind] for convolution, n in network.items()) for kind in ("forward", "both")
    )
    floors = {"PCL": size.peers * (forward + both), "Baseline": both}
    found = {
        row: times(seconds[row], [s / floors[row] for s in seconds[row]]).plain() | {"floor_seconds": floors[row]}
        for row in steppers
    }
    layers = [
        {
            "input": list(convolution.input),
            "weight": list(convolution.weight),
            "stride": list(convolution.stride),
            "count": count,
            **{
                f"{kind}_{layout}": _median(sweeps, convolution, layout, kind)
                for kind in ("forward", "both")
                for layout in LAYOUTS
            },
        }
        for convolution, count in network.items()
    ]
    return {**found, "convolutions": layers}


def _median(sweeps: list[Floor], convolution: Convolution, layout: str, kind: str) -> float:
    return statistics.median(sweep[convolution, layout, kind] for sweep in sweeps)
