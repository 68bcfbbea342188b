"""`coterie reproduce --dry-run`: the runs, their state, what they cost, and the time they will take here."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console

from ..data import Data
from ..errors import InputError
from ..experiments.estimate import (
    Speed,
    estimate_seconds,
    format_duration,
    measure_speed,
    plain_network,
    wall_clock,
)
from ..experiments.job import Job
from ..experiments.launch_local import process_environments
from ..experiments.run_state import run_state
from ..experiments.runner import needed_teachers
from ..report.table import Cell, Table, number, print_table, print_text, text
from .reproduce import Reproduction

MEASURING = 8.0
"""Seconds after which no further network is measured."""


class Speeds:
    """The speed of each plain network on its data, measured once; what cannot be measured is told."""

    def __init__(self, reproduction: Reproduction, threads: int) -> None:
        self.reproduction, self.threads = reproduction, threads
        self.problems: dict[str, None] = {}
        self._speeds: dict[str, Speed | None] = {}
        self._data: dict[str, Data] = {}
        self._end = time.monotonic() + MEASURING

    def of(self, job: Job) -> Speed | None:
        network = plain_network(job)
        if network.name not in self._speeds:
            try:
                self._speeds[network.name] = self._measure(network)
            except InputError as error:
                self.problems[str(error)] = None
                self._speeds[network.name] = None
        return self._speeds[network.name]

    def _measure(self, network: Job) -> Speed:
        if time.monotonic() > self._end:
            raise InputError("Networks that would take longer to measure have no time: --only chooses fewer.")
        recipe = self.reproduction.recipe(network)
        options = {name: value for name, value in network.options.items() if name.partition(".")[0] == "data"}
        recipe.data = self._data.setdefault(str(options), recipe.data)  # loaded once for all networks
        return measure_speed(recipe, self.threads, seconds=0.5)


def list_runs(reproduction: Reproduction, jobs: Sequence[Job], processes: int | None, threads: int) -> None:
    """Print the runs with their state, their cost in plain trainings, and the time they will take here."""
    speeds = Speeds(reproduction, threads)
    rows, times, unknown_times = [], [], 0
    epochs, plain_epochs = 0, 0.0
    needed = needed_teachers(jobs, reproduction.out)
    for job in jobs:
        state = run_state(reproduction.out, job, weights=job.name in needed)
        left = 0 if state.kind == "done" else job.epochs - (state.epochs if state.kind == "partial" else 0)
        own = speeds.of(job) if left else None
        teacher = speeds.of(job.needs) if own is not None and job.needs else None
        cost = job.step_cost(teacher.step / own.step if own is not None and teacher is not None else 1.0)
        estimated = None if own is None else estimate_seconds(job, left, own, teacher)
        times += [] if estimated is None else [estimated]
        unknown_times += bool(left) and estimated is None
        epochs, plain_epochs = epochs + left, plain_epochs + left * cost
        duration = "" if estimated is None else format_duration(estimated)
        rows.append(
            [
                text(job.name),
                text(state.kind),
                Cell(str(left or ""), left),
                number(cost, "{:.1f}"),
                Cell(duration, estimated),
            ]
        )
    protocol, console = reproduction.protocol, Console()
    title = f"{reproduction.experiment}, {protocol.name}: {protocol.description}"
    columns = ["run", "state", "epochs left", "cost", "time here"]
    if not times:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(Table(title, columns, rows), console)
    parts = [
        f"{len(jobs)} runs",
        f"{epochs:,} epochs left, as much work as {plain_epochs:,.0f} of the plain networks",
    ]
    if times or not unknown_times:
        slots = len(process_environments(threads, processes))
        least = format_duration(wall_clock(times, slots))
        parts.append(f"{format_duration(sum(times))} in all, at best {least} with {slots} at once")
    if unknown_times:
        parts.append(f"{unknown_times} cannot be estimated")
    for sentence in ("; ".join(parts) + ".", *speeds.problems):
        print_text(sentence, console)
