"""The check of speed: steps per second of every method beside the plain network's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..methods import available
from ..training.step import Step
from .checks import Outcome
from .doctor_steps import SIZE, fixed_batch
from .subjects import EPOCH, build_method, build_step, default_cut_of, stated_cost
from .timing import time_in_turns


def check_speed(device: torch.device) -> Outcome:
    """Time a step of every method beside one of the plain network; there is no bound, as machines differ."""
    cut = default_cut_of(SIZE)
    subjects = {name: _timed_step(name, device) for name in available()}
    times = time_in_turns(subjects["Baseline"], subjects, SIZE.rounds)
    measured = {"plain steps per second": 1 / times["Baseline"]["seconds"]}
    measured |= {f"{name} / plain": row["ratio"] for name, row in times.items() if name != "Baseline"}
    ratios = ", ".join(
        f"{name} {times[name]['ratio']:.1f} ({stated_cost(name, cut, SIZE.peers):.1f})"
        for name in times
        if name != "Baseline"
    )
    plain = measured["plain steps per second"]
    return Outcome("pass", f"plain network {plain:.0f}; a step in plain steps (by arithmetic): {ratios}", measured)


def _timed_step(name: str, device: torch.device) -> Callable[[], Any]:
    step = build_step(build_method(name, SIZE, device=device))
    views, labels = fixed_batch(step.method)
    inputs, targets = [view.to(device) for view in views], labels.to(device)
    return partial(_step_and_wait, step, inputs, targets, device)


def _step_and_wait(step: Step, views: list[Tensor], labels: Tensor, device: torch.device) -> None:
    step(views, labels, EPOCH)
    torch.get_device_module(device).synchronize()
