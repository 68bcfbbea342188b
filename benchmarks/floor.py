"""How near a step is to the time of its convolutions alone, each in its best memory layout.

python benchmarks/floor.py [--quick] [-o FILE]
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from harness import run_script
from torch import Tensor, nn

from coterie.bench.subjects import BenchSize, build_method, build_step, default_device, repeat_step
from coterie.bench.timing import quartiles_cell, summarize_turns, time_call
from coterie.report.table import Cell, Table, number, text

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
    """Count the convolutions of a forward pass."""
    calls: Counter[Convolution] = Counter()

    def note(layer: nn.Conv2d, args: tuple[Tensor, ...], output: Tensor) -> None:
        shapes = (tuple(args[0].shape), tuple(layer.weight.shape), layer.stride, layer.padding, layer.dilation)
        calls[Convolution(*shapes, layer.groups, first=not args[0].requires_grad)] += 1

    handles = [part.register_forward_hook(note) for part in network.modules() if isinstance(part, nn.Conv2d)]
    try:
        network(images)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def time_convolution(convolution: Convolution, layout: torch.memory_format) -> tuple[float, float]:
    """Return the seconds of the forward pass alone, and of forward and backward: the least of a few calls."""
    device = default_device()
    x, w = (
        torch.randn(shape, device=device).contiguous(memory_format=layout)
        for shape in (convolution.input, convolution.weight)
    )
    call = (None, convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
    with torch.no_grad():
        gradient = torch.randn_like(F.conv2d(x, w, *call))
        forward = min(time_call(lambda: F.conv2d(x, w, *call)) for _ in range(REPEATS))
    inputs = [w] if convolution.first else [x, w]
    for tensor in inputs:
        tensor.requires_grad_()
    both = min(
        time_call(lambda: torch.autograd.grad(F.conv2d(x, w, *call), inputs, gradient)) for _ in range(REPEATS)
    )
    return forward, both


def sweep_layouts(network: Mapping[Convolution, int]) -> Floor:
    """Time every convolution once in each layout."""
    seconds: Floor = {}
    for convolution in network:
        for layout, format in LAYOUTS.items():
            forward, both = time_convolution(convolution, format)
            seconds[convolution, layout, "forward"], seconds[convolution, layout, "both"] = forward, both
    return seconds


def measure(size: BenchSize) -> dict[str, Any]:
    """Measure PCL beside m forward and backward and m forward passes, Baseline beside one pass."""
    torch.manual_seed(0)
    steps = {name: repeat_step(build_step(build_method(name, size)), size) for name in ("PCL", "Baseline")}
    plain, device = size.make_network().to(default_device()), default_device()
    network = convolutions(plain, torch.randn(size.batch, *size.shape, device=device))
    sweeps: list[Floor] = []
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(size.rounds + 1):
        before = {name: time_call(step) for name, step in steps.items()}
        sweep = sweep_layouts(network)
        after = {name: time_call(step) for name, step in steps.items()}
        if turn:  # the first round warms up
            sweeps.append(sweep)
            for name in steps:
                seconds[name].append((before[name] + after[name]) / 2)
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
    rows = {
        name: summarize_turns(seconds[name], [s / floors[name] for s in seconds[name]])
        | {"floor_seconds": floors[name]}
        for name in steps
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
    return {**rows, "convolutions": layers}


def _median(sweeps: list[Floor], convolution: Convolution, layout: str, kind: str) -> float:
    return statistics.median(sweep[convolution, layout, kind] for sweep in sweeps)


def tables(section: dict[str, Any]) -> list[Table]:
    rows = [
        [
            text(name),
            number(section[name]["ratio"], "{:.2f}"),
            quartiles_cell(*section[name]["quartiles"]),
            number(section[name]["seconds"], "{:.3g}"),
            number(section[name]["floor_seconds"], "{:.3g}"),
        ]
        for name in ("PCL", "Baseline")
    ]
    columns = ["method", "step / its convolutions", "quartiles", "step, seconds", "convolutions, seconds"]
    layers = [
        [
            text("x".join(map(str, layer["input"]))),
            text(f"{layer['weight'][0]}, {layer['weight'][2]}x{layer['weight'][3]} / {layer['stride'][0]}"),
            number(layer["count"]),
            *(_milliseconds(layer, kind, layout) for kind in ("forward", "both") for layout in LAYOUTS),
        ]
        for layer in section["convolutions"]
    ]
    times = ["forward, NCHW (ms)", "NHWC", "with backward, NCHW", "NHWC"]
    return [
        Table("A step and its convolutions alone", columns, rows),
        Table("The convolutions", ["input", "filters, size / stride", "times", *times], layers),
    ]


def _milliseconds(layer: dict[str, Any], kind: str, layout: str) -> Cell:
    seconds = layer[f"{kind}_{layout}"]
    return Cell(f"{1000 * seconds:.2f}", seconds)


if __name__ == "__main__":
    run_script("floor", measure, tables)
