"""`coterie reproduce --dry-run`: the runs, their state, and the time they will take here."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

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
from ..report.table import Cell, Table, print_table, text
from .reproduce import Reproduction


def list_runs(reproduction: Reproduction, jobs: Sequence[Job], processes: int | None, threads: int) -> None:
    """Print the runs with their state and the time they will take here."""
    speeds: dict[str, Speed | None] = {}
    problems: dict[str, None] = {}

    def speed(job: Job) -> Speed | None:
        network = plain_network(job)
        if network.name not in speeds:
            try:
                speeds[network.name] = measure_speed(reproduction.recipe(network), threads)
            except InputError as error:
                problems[str(error)] = None
                speeds[network.name] = None
        return speeds[network.name]

    rows, times, unknown_times = [], [], 0
    needed = needed_teachers(jobs, reproduction.out)
    for job in jobs:
        state = run_state(reproduction.out, job, weights=job.name in needed)
        left = 0 if state.kind == "done" else job.epochs - (state.epochs if state.kind == "partial" else 0)
        estimated = None
        if left and (own := speed(job)) is not None:
            estimated = estimate_seconds(job, left, own, speed(job.needs) if job.needs else None)
            times.append(estimated)
        unknown_times += bool(left) and estimated is None
        duration = "" if estimated is None else format_duration(estimated)
        rows.append([text(job.name), text(state.kind), Cell(str(left or ""), left), Cell(duration, estimated)])
    protocol, console = reproduction.protocol, Console()
    title = f"{reproduction.experiment}, {protocol.name}: {protocol.description}"
    print_table(Table(title, ["run", "state", "epochs left", "time here"], rows), console)
    slots = len(process_environments(threads, processes))
    least = format_duration(wall_clock(times, slots))
    parts = [f"{len(jobs)} runs"]
    if times or not unknown_times:
        parts.append(f"{format_duration(sum(times))} in all, at best {least} with {slots} at once")
    if unknown_times:
        parts.append(f"{unknown_times} cannot be estimated")
    for sentence in ("; ".join(parts) + ".", *problems):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
