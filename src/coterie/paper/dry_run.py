"""`coterie reproduce --dry-run`: the runs, their state, and the time they will take here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..experiments.estimate import Speed, clock, measure, plain, seconds, wall_clock
from ..experiments.job import Job
from ..experiments.runner import environments, teachers
from ..experiments.state import state
from ..report.terminal import print_table

if TYPE_CHECKING:
    from .reproduce import Reproduction


def list_runs(made: Reproduction, jobs: Sequence[Job], processes: int | None, threads: int) -> None:
    """Print the runs with their state and the time they will take here."""
    speeds: dict[str, Speed | None] = {}
    problems: dict[str, None] = {}

    def speed(job: Job) -> Speed | None:
        network = plain(job)
        if network.name not in speeds:
            try:
                speeds[network.name] = measure(made.recipe(network), threads)
            except InputError as error:
                problems[str(error)] = None
                speeds[network.name] = None
        return speeds[network.name]

    table = Table(title=f"{made.experiment}, {made.protocol.name}: {made.protocol.says}")
    for column in ("run", "state", "epochs left", "time here"):
        table.add_column(column, justify="left" if column in ("run", "state") else "right")
    times, unknown_times = [], 0
    needed = teachers(jobs, made.out)
    for job in jobs:
        now = state(made.out, job, weights=job.name in needed)
        left = 0 if now.kind == "done" else job.epochs - (now.epochs if now.kind == "partial" else 0)
        estimated = None
        if left and (own := speed(job)) is not None:
            estimated = seconds(job, left, own, speed(job.needs) if job.needs else None)
            times.append(estimated)
        unknown_times += bool(left) and estimated is None
        table.add_row(job.name, now.kind, str(left or ""), "" if estimated is None else clock(estimated))
    console = Console()
    print_table(table, console)
    slots = len(environments(threads, processes))
    total = f"{clock(sum(times))} in all, at best {clock(wall_clock(times, slots))} with {slots} at once"
    parts = [f"{len(jobs)} runs"]
    parts += [total] if times or not unknown_times else []
    parts += [f"{unknown_times} cannot be estimated"] if unknown_times else []
    console.print("; ".join(parts) + ".", highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(problem, highlight=False, markup=False, soft_wrap=True)
