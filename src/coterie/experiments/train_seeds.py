"""One recipe with several seeds: runs are trained where missing, then a table of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..config.recipe import Recipe
from ..errors import InputError
from ..metrics.seeds import Spread
from ..report.table import Table, number, spread, text
from ..runs.reader import Result, score
from ..runs.selection import errors_sentence
from .directory import check_directory, write_note
from .job import Job, check_seeds
from .recipe_job import job_of
from .run_state import run_state
from .runner import LAUNCHERS, run_jobs

NOTE = "seeds.json"
"""Lists the runs, in their directory: the same command continues them."""


def seed_jobs(recipe: Recipe, seeds: int, out: Path) -> list[Job]:
    """Return the jobs of so many seeds, from the recipe's own on; refuse what no run could be trained from."""
    check_seeds(seeds)
    if (out / "config.yaml").is_file():
        raise InputError(f"{out} holds a single run: choose another `out` for the runs of several seeds.")
    check_directory(out, NOTE)
    recipe.torch_device()
    recipe.build().prepare()  # what is wrong is said once, before any training
    job = job_of(recipe)
    return [replace(job, seed=seed) for seed in range(recipe.seed, recipe.seed + seeds)]


def train_seeds(jobs: Sequence[Job], out: Path) -> dict[str, str]:
    """Train what is missing, several at once where there is room; return the runs that failed, and why."""
    if all(run_state(out, job).kind == "done" for job in jobs):
        return {}
    write_note(out, NOTE, {"runs": [job.name for job in jobs]})
    launcher = LAUNCHERS["local"](out, {}, processes=None, threads=1, start_in=Path.cwd())
    return run_jobs(jobs, out, launcher)


def seeds_table(jobs: Sequence[Job], out: Path) -> Table:
    """Return the errors of the finished runs, seed by seed, and their mean and standard deviation."""
    states = [(job.seed, run_state(out, job)) for job in jobs]
    runs = {seed: state.result for seed, state in states if state.kind == "done"}
    rows = [
        [
            number(seed),
            number(_score(run, "error"), "{:.2f}"),
            number(_score(run, "nll"), "{:.3f}"),
            text(f"{run.deployed_record['deployed']}, epoch {run.deployed_record['epoch'] + 1} of {run.epochs}"),
            text(run.path.name),
        ]
        for seed, run in runs.items()
    ]
    if not rows:
        return Table("no run is finished yet", [], [])
    error, nll = (Spread.of(_score(run, name) for run in runs.values()) for name in ("error", "nll"))
    rows.append([text("all"), spread(error), spread(nll, 3), text(""), text("")])
    first = next(iter(runs.values()))
    images = "held-out images" if first.last.get("split") == "val" else "test images"
    several = _score(first, "map") is not None
    return Table(
        f"{first.method}, {first.setting}: {'100 − mAP' if several else 'error'} on the {images}",
        ["seed", "100 − mAP" if several else "error %", "NLL", "weights", "run"],
        rows,
        f"The last row has mean ± sample standard deviation. {errors_sentence(first.select)}",
    )


def _score(run: Result, name: str) -> float | None:
    record = run.deployed_record
    return score(record, record["deployed"], name)
