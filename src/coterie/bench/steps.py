"""Section `steps`: time and peak memory of a training step of every method, relative to the plain network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import usual
from .memory import peak
from .size import Size
from .subjects import ROWS, Stepper, cut_of, made, theory
from .timing import Run, in_turns

RECOMPUTED = "PCL --checkpoint-activations"
REFERENCE = "PCL, reference"


def measure(size: Size) -> dict[str, Any]:
    torch.manual_seed(0)
    steppers = {row: Stepper(made(row, size), size.batch, size) for row in ROWS}
    found = in_turns(steppers["Baseline"], steppers, size.rounds)
    cut, held = cut_of(size), _memory(size)
    rows = {
        row: {
            **times.plain(),
            "theory": theory(row, cut, size.peers),
            "memory": held[row],
            "memory_ratio": held[row] / held["Baseline"],
        }
        for row, times in found.items()
    }
    return {
        "methods": rows,
        "branch_share": cut.share,
        "memory": {
            name: {"bytes": held[name], "to_reference": held[name] / held[REFERENCE]}
            for name in ("PCL", RECOMPUTED, REFERENCE)
        },
    }


def _memory(size: Size) -> dict[str, int]:
    builders: dict[str, Callable[[], Run]] = {row: partial(_stepper, row, size) for row in ROWS}
    builders[RECOMPUTED] = partial(_stepper, "PCL", size, recompute=True)
    builders[REFERENCE] = partial(usual.stepper, size)
    return {name: peak(build) for name, build in builders.items()}


def _stepper(row: str, size: Size, recompute: bool = False) -> Run:
    return Stepper(made(row, size, recompute=recompute), size.batch, size)
