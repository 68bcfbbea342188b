"""Estimate how long runs will take here: a few real steps of each plain network, times what a method costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..config.recipe import Recipe
from ..peers.layout import channels_last
from ..training.precision import Precision
from ..training.step import Step
from .job import Job

STEPS = 3
FIRST_PART = 8
"""Images of the first steps that are measured."""
LONGEST = 2.0
"""Seconds that the longest step takes which is measured."""


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step and of a pass over the test set, and the steps of an epoch."""

    step: float
    test: float
    steps: int


def plain_network(job: Job) -> Job:
    """Return the job of the plain network, whose speed is measured."""
    own = {"peers", "cut"}  # of those that have branches
    options = {k: value for k, value in job.options.items() if k not in own and not k.startswith("method.")}
    return Job({**options, "method": "Baseline", "epochs": 1, "ema": False}, seed=0)


def measure_speed(recipe: Recipe, threads: int, seconds: float = LONGEST) -> Speed:
    """Train and evaluate a little, with as many threads as a run will have.

    Where a step of a whole batch would take longer than so many seconds, one of a part of the batch is taken, and
    its time is scaled.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measure(recipe, seconds)
    finally:
        torch.set_num_threads(before)


def _measure(recipe: Recipe, seconds: float) -> Speed:
    method, data, device = recipe.build(fresh=False), recipe.data, recipe.torch_device()
    channels_last(method.to(device), method.net.peers, data.shape)
    optimise = Step(method, recipe.build_optimizer(method), Precision(device, recipe.precision))

    def step(images: int) -> float:
        started = time.perf_counter()
        views, labels = data.views(np.arange(images), method.views, recipe.seed, 0)
        terms = optimise([view.to(device) for view in views], labels.to(device), 0)
        terms["loss"].item()  # a GPU has finished
        return time.perf_counter() - started

    part = min(recipe.batch, FIRST_PART)
    step(part)  # the first one also allocates
    duration = step(part)
    while part < recipe.batch and duration * 4 < seconds:
        part = min(recipe.batch, 4 * part)
        duration = step(part)
    if duration * STEPS < seconds:
        duration = sum(step(part) for _ in range(STEPS)) / STEPS
    per_step = duration * recipe.batch / part
    images, _ = next(iter(data.test_batches(part, slice(part))))
    started = time.perf_counter()
    with torch.no_grad():
        method.eval().net(images.to(device)).logits.sum().item()
    per_image = (time.perf_counter() - started) / len(images)
    return Speed(per_step, per_image * data.eval_size, recipe.steps_per_epoch)


def estimate_seconds(job: Job, epochs: int, speed: Speed, teacher: Speed | None) -> float:
    """Estimate the last so many epochs of a job, its evaluations included."""
    step_cost = job.step_cost(teacher.step / speed.step if teacher else 1.0)
    ema = bool(job.options.get("ema"))
    evaluation_cost = job.method.evaluation_cost(job.peers, job.share, job.method_options, ema)
    return seconds_at_cost(job, epochs, speed, step_cost, evaluation_cost)


def seconds_at_cost(job: Job, epochs: int, speed: Speed, step_cost: float, evaluation_cost: float) -> float:
    """Estimate the last so many epochs of a job, by the cost of a step and of an evaluation in plain ones."""
    evaluations = sum(epoch >= job.epochs - epochs for epoch in job.evaluated)
    return epochs * speed.steps * speed.step * step_cost + evaluations * speed.test * evaluation_cost


def wall_clock(times: Sequence[float], slots: int) -> float:
    """Return the least time that so many runs at once can take."""
    return max([sum(times) / slots, *times], default=0.0)


def format_duration(value: float) -> str:
    """Write seconds in the unit that suits them."""
    if value < 90:
        return f"{value:.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 48 * 3600 else f"{value / 86400:.1f} days"
