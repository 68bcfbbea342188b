"""The plan of a comparison: how many seeds and epochs of each method, noted in its directory."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config.options import from_options
from ..config.recipe import Recipe, read_duration
from ..errors import InputError
from ..files import load_json
from ..peers.cost import plain_training_macs, training_macs
from ..peers.net import standalone
from .compare_methods import Options
from .directory import check_directory, write_note
from .estimate import Speed, format_duration, measure_speed, seconds_at_cost, wall_clock
from .job import Job, check_seeds
from .recipe_job import job_of

NOTE = "compare.json"
"""The plan, in the directory of runs: the same command continues with it, whatever is measured then."""
ENOUGH_SEEDS = 3
"""Epochs are given up for these many seeds, and further seeds for all epochs."""
START = 10.0
"""Seconds of a run beside its steps and evaluations: its start, and what is counted at its end."""
RESERVE = 0.1
"""The part of a budget that is left free: speeds are estimated."""


@dataclass(frozen=True)
class CompareRequest:
    """What is to be compared.

    Args:
        out: the directory of runs.
        methods: by label, the options of a training with each method; the first is the reference.
        seeds: runs of each method, with seeds 0, 1, ...
        equal_cost: whether cheaper methods get more epochs, as many as cost the same.
        budget: a time, such as 2h, that all runs should fit into.
    """

    out: Path
    methods: Mapping[str, Options]
    seeds: int = 3
    equal_cost: bool = False
    budget: str | None = None

    def __post_init__(self) -> None:
        check_seeds(self.seeds)
        if self.budget is not None:
            read_duration("budget", self.budget)
        check_directory(self.out, NOTE)

    def recipe(self, label: str, **changes: Any) -> Recipe:
        """Return the recipe of a method, with other values of some options."""
        return from_options({**self.methods[label], **changes})

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe of each method as asked for; all have the same data, which is loaded once."""
        recipes = {label: self.recipe(label, seed=0) for label in self.methods}
        first = next(iter(recipes.values()))
        for recipe in recipes.values():
            recipe.data = first.data
        return recipes

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """The job of each method as asked for, with seed 0."""
        return {label: job_of(recipe) for label, recipe in self.recipes.items()}

    @property
    def epochs(self) -> int:
        """How many are asked for."""
        return next(iter(self.recipes.values())).epochs

    @property
    def has_objects(self) -> bool:
        """Whether options are Python objects that no other process can be given."""
        return any(recipe.objects for recipe in self.recipes.values())

    def as_plain(self) -> dict[str, Any]:
        """Return all of it as plain values, by which a noted plan is known to be its own."""
        methods = {label: dict(job.options) for label, job in self.jobs.items()}
        content = {"methods": methods, "seeds": self.seeds, "equal_cost": self.equal_cost, "budget": self.budget}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain


@dataclass(frozen=True)
class ComparePlan:
    """Seeds of every method, epochs of each, and what a step of each costs in steps of the plain network."""

    seeds: int
    epochs: Mapping[str, int]
    costs: Mapping[str, float]
    speed: Speed | None = None
    """Of the network alone, if it was measured for the plan."""

    def jobs(self, request: CompareRequest) -> dict[str, list[Job]]:
        """Return the jobs of each method, by seed."""
        jobs: dict[str, list[Job]] = {}
        for label, first in request.jobs.items():
            job = replace(first, options={**first.options, "epochs": self.epochs[label]})
            jobs[label] = [replace(job, seed=seed) for seed in range(self.seeds)]
        return jobs


def noted_plan(request: CompareRequest) -> ComparePlan | None:
    """Return the plan that was made for this request before, if there is one."""
    file = request.out / NOTE
    if not file.is_file():
        return None
    try:
        note = load_json(file)
        plan = ComparePlan(int(note["seeds"]), dict(note["epochs"]), dict(note["costs"]))
        same = note["request"] == request.as_plain()
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        raise InputError(f"{file} is damaged: remove it, and the runs beside it are found again.") from None
    return plan if same else None


def note_plan(request: CompareRequest, plan: ComparePlan) -> None:
    """Write the plan into the directory of runs."""
    content = {"request": request.as_plain(), "seeds": plan.seeds, "epochs": plan.epochs, "costs": plan.costs}
    write_note(request.out, NOTE, content)


def count_costs(request: CompareRequest) -> dict[str, float]:
    """Build every method, so that what is wrong is said before any training; count a step of each.

    Returns the multiply-adds of a step in those of the plain network.
    """
    costs = {}
    for label, recipe in request.recipes.items():
        method = recipe.build()
        method.prepare()
        shape, classes = recipe.data.shape, len(recipe.data.classes)
        plain = plain_training_macs(standalone(method.net.peers[0]), shape)
        costs[label] = training_macs(method, shape, method.views, classes) / plain
    return costs


def measure_plain(request: CompareRequest, threads: int) -> Speed:
    """Measure a step of the network alone."""
    label, first = next(iter(request.recipes.items()))
    model = first.objects.get("model", first.model)
    alone = request.recipe(label, method="Baseline", model=model, peers=1, cut=None, ema=False, epochs=1, seed=0)
    alone.data = first.data
    return measure_speed(alone, threads)


def make_plan(
    request: CompareRequest, slots: int, threads: int, measure: Callable[[CompareRequest, int], Speed]
) -> ComparePlan:
    """Plan what is asked for, or what of it fits into the budget."""
    costs = count_costs(request)
    if request.budget is None:
        return _plan(request, costs, request.seeds, request.epochs)
    speed = measure(request, threads)

    def seconds(seeds: int, epochs: int) -> float:
        plan = _plan(request, costs, seeds, epochs)
        return wall_clock([time for times in run_seconds(request, plan, speed).values() for time in times], slots)

    limit = (1 - RESERVE) * read_duration("budget", request.budget)
    size = fit_budget(request.seeds, request.epochs, limit, seconds)
    if size is None:
        fewest = fewest_epochs(request.epochs)
        least = format_duration(seconds(1, fewest) / (1 - RESERVE))
        raise InputError(
            f"`budget` {request.budget} is too little: one seed of each method for {fewest} "
            f"epoch{'s' if fewest > 1 else ''} needs about {least} here."
        )
    return replace(_plan(request, costs, *size), speed=speed)


def _plan(request: CompareRequest, costs: Mapping[str, float], seeds: int, epochs: int) -> ComparePlan:
    """Return a plan; at equal cost, each method has the computation of the dearest in so many epochs."""
    dearest = max(costs.values())
    longer = {label: dearest / cost if request.equal_cost else 1.0 for label, cost in costs.items()}
    return ComparePlan(seeds, {label: round(epochs * factor) for label, factor in longer.items()}, costs)


def run_seconds(request: CompareRequest, plan: ComparePlan, speed: Speed) -> dict[str, list[float]]:
    """Estimate the time of each run."""
    seconds = {}
    for label, jobs in plan.jobs(request).items():
        job, recipe = jobs[0], request.recipes[label]
        evaluation = recipe.method_class.evaluation_cost(job.peers, job.share, recipe.method_options, recipe.ema)
        training = seconds_at_cost(job, job.epochs, speed, plan.costs[label], evaluation)
        seconds[label] = [START + training] * len(jobs)
    return seconds


def fewest_epochs(epochs: int) -> int:
    """Return the fewest epochs to which a budget may shorten a training: a tenth."""
    return max(1, math.ceil(epochs / 10))


def fit_budget(
    seeds: int, epochs: int, limit: float, seconds: Callable[[int, int], float]
) -> tuple[int, int] | None:
    """Return the seeds and epochs that fit, by `seconds(seeds, epochs)`; None if nothing does.

    Seeds beyond three are given up first, then epochs down to a tenth, then seeds down to one.
    """
    enough, fewest = min(ENOUGH_SEEDS, seeds), fewest_epochs(epochs)
    for count in range(seeds, enough - 1, -1):
        if seconds(count, epochs) <= limit:
            return count, epochs
    if seconds(enough, fewest) <= limit:
        counts = range(fewest, epochs)
        return enough, counts[bisect_right(counts, limit, key=lambda count: seconds(enough, count)) - 1]
    for count in range(enough - 1, 0, -1):
        if seconds(count, fewest) <= limit:
            return count, fewest
    return None
