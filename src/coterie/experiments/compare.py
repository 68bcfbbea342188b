"""Methods compared on one network and data: runs are trained where missing, then a table, a verdict and a page."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from markupsafe import Markup, escape

from ..config.options import OPTIONS, PARTS, with_options
from ..errors import InputError
from ..files import given_path
from ..metrics.seeds import NOTHING, PAIRED
from ..names import unknown_option
from ..report.evaluation import read_evaluation
from ..report.page import write_report
from ..report.table import Cell, Table, difference, number, spread, text, to_html
from ..runs.reader import object_name, score
from ..runs.selection import SELECTED, errors_sentence
from ..training.loop import train_recipe
from .compare_methods import MethodChoice, check_method_options, label_methods, method_options
from .compare_plan import ComparePlan, CompareRequest, make_plan, measure_plain, note_plan, noted_plan
from .finished import FinishedRuns, cost_ratio, errors_of
from .job import Job
from .launch_local import process_environments
from .run import Run, seed_for_training, train
from .run_state import run_state
from .runner import LAUNCHERS, raise_failed, run_jobs
from .verdict import MethodResult, chance_sentence, verdict

COST = "Cost: training time relative to the first row, computed from the fastest part of a row's runs."


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: a table, a verdict, and the finished runs of each method."""

    out: Path
    table: Table
    verdict: str
    """Two sentences: which differences are clear, and which are not; and one more where a method only guesses."""
    runs: Mapping[str, Sequence[Run]]
    """The finished runs of each method, in the order of their seeds; the reference comes first."""
    winner: str | None
    """The method that is clearly better than the reference; failing that, the one with the lowest error."""

    def __repr__(self) -> str:
        return f"Comparison('{self.out}': {', '.join(self.runs)}; {self.verdict.partition('. ')[0]})"

    def _repr_html_(self) -> str:
        return str(Markup("{}\n<p>{}</p>").format(to_html(self.table, sortable=False), escape(self.verdict)))


def slots_of(request: CompareRequest, processes: int | None, threads: int) -> int:
    """Return how many runs are trained at once; Python objects stay in this process."""
    return 1 if request.has_objects else len(process_environments(threads, processes))


def plan_comparison(request: CompareRequest, processes: int | None, threads: int) -> ComparePlan:
    """Return the plan that the directory has of this request, or make one."""
    plan = noted_plan(request)
    return plan or make_plan(request, slots_of(request, processes, threads), threads, measure_plain)


def train_missing(
    request: CompareRequest,
    plan: ComparePlan,
    launcher: str = "local",
    processes: int | None = None,
    threads: int = 1,
) -> dict[str, str]:
    """Train what is missing, one seed of every method after the other; return the runs that failed, and why."""
    by_method = plan.jobs(request)
    jobs = [by_method[label][seed] for seed in range(plan.seeds) for label in by_method]
    missing = [job for job in jobs if run_state(request.out, job).kind != "done"]
    if not missing:
        return {}
    note_plan(request, plan)
    if not request.has_objects:
        launch = LAUNCHERS[launcher](request.out, {}, processes, threads, start_in=Path.cwd())
        return run_jobs(jobs, request.out, launch)
    for label, own in by_method.items():
        for job in own:
            if job in missing:
                recipe = request.recipe(label, epochs=job.epochs, seed=job.seed)
                with seed_for_training(job.seed):
                    train_recipe(recipe, request.out / job.name, f"{label}, seed {job.seed}")
    return {}


def read_comparison(request: CompareRequest, plan: ComparePlan) -> Comparison:
    """Return the result of the finished runs, and write their page."""
    jobs = plan.jobs(request)
    finished = {label: _finished(request.out, own) for label, own in jobs.items()}
    reference = next(iter(finished))
    errors = {label: errors_of(runs) for label, runs in finished.items()}
    costs = {label: cost_ratio(finished[label], finished[reference], None) for label in finished}
    chance = {label: _is_at_chance(runs, errors[label]) for label, runs in finished.items()}
    lasts = [run.last for runs in finished.values() for run in runs.values()]
    several = any(score(last, last["deployed"], "map") is not None for last in lasts)
    own, *results = (
        MethodResult(
            label,
            errors[label],
            {} if label == reference else errors[reference],
            costs[label],
            chance[label],
            several,
        )
        for label in finished
    )
    directories = [run.path for runs in finished.values() for run in runs.values()]
    if directories:
        against = next((str(run.path) for run in finished[reference].values()), "")
        write_report(directories, request.out / "report.html", against=against)
    images = "held-out images" if lasts and lasts[0].get("split") == "val" else "test images"
    selects = next(iter(request.recipes.values())).select == "best"
    objects = {label: recipe.objects for label, recipe in request.recipes.items()}
    return Comparison(
        request.out,
        _table(request, plan, [own, *results], images),
        verdict(reference, results, f"{images} that selected each run's weights" if selects else images)
        + chance_sentence([own, *results]),
        {label: [Run(run.path, **objects[label]) for run in runs.values()] for label, runs in finished.items()},
        _winner([own, *results]),
    )


def _finished(out: Path, jobs: Sequence[Job]) -> FinishedRuns:
    states = {job.seed: run_state(out, job) for job in jobs}
    return {seed: state.result for seed, state in states.items() if state.kind == "done"}


def _is_at_chance(runs: FinishedRuns, errors: Mapping[int, float]) -> bool:
    """Tell whether the mean error is no better than guessing, by what the runs' evaluations say of the images."""
    evaluations = [read_evaluation(run.path) for run in runs.values()]
    return any(evaluation.is_at_chance(fmean(errors.values())) for evaluation in evaluations if errors)


def _winner(results: Sequence[MethodResult]) -> str | None:
    """Return the lowest error of those that are clearly better than the reference; failing these, of all."""
    scored = [result for result in results if result.error.count]
    better = [result for result in scored if result.clear and result.mean < 0]
    best = min(better or scored, key=lambda result: result.error.mean, default=None)
    return best.label if best else None


def _table(request: CompareRequest, plan: ComparePlan, results: Sequence[MethodResult], images: str) -> Table:
    reference = results[0].label
    rows = [
        [
            text(result.label),
            spread(result.error),
            number(result.error.count),
            difference(result.difference),
            Cell(f"{result.won}/{len(result.differences)}", result.won) if result.differences else Cell(NOTHING),
            number(result.cost, "{:.1f}"),
            number(plan.epochs[result.label]),
        ]
        for result in results
    ]
    recipe = request.recipes[reference]
    network = object_name(recipe.config["model"])
    several = results[0].several_labels
    mark = f", {SELECTED}" if recipe.select == "best" else ""
    title = f"{network} on {recipe.data.title}{mark}: {'100 − mAP' if several else 'error'} on the {images}"
    columns = ["method", "100 − mAP" if several else "error %", "n", f"vs. {reference}", "won", "cost", "epochs"]
    equal = (
        " Epochs are such that all have the computation of the dearest method, in whole epochs."
        if request.equal_cost
        else ""
    )
    return Table(
        title,
        columns,
        rows,
        f"{errors_sentence(recipe.select)} {PAIRED} Won: with how many seeds it errs less. {COST}{equal}",
    )


def compare(
    *,
    out: str | Path,
    methods: str | Sequence[MethodChoice] = ("Baseline", "PCL"),
    seeds: int = 3,
    equal_cost: bool = False,
    budget: str | None = None,
    launcher: Literal["local", "ray"] = "local",
    processes: int | None = None,
    threads: int = 1,
    **options: Any,
) -> Comparison:
    """Compare methods on your network and data; the same call again continues the comparison.

    Each run is a process, and several run at once. If an option is a Python object that cannot be written to a
    file, the runs are trained one after another in this process.

    Args:
        out: the directory of runs.
        methods: names, classes or partials of classes; or a text of names, separated by commas. They are compared
            with Baseline if it is among them, else with the first.
        seeds: number of seeds of each method.
        equal_cost: give cheaper methods more epochs, so that all cost as much as the most expensive one.
        budget: plan runs that take at most this time in total, such as "2h", with fewer seeds or epochs if needed.
        launcher: processes on this machine, or a Ray cluster.
        processes: number of runs at the same time; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each run.
        options: those of `coterie.train`; each of the `method_options` goes to the methods that have it.
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(train).parameters.items()}
    own = dict(options.pop("method_options", None) or {})
    names = [*(name for name in OPTIONS if name not in ("method", "seed")), *(f"{part}_options" for part in PARTS)]
    for name in options:
        if name not in names:
            raise unknown_option(name, names)
    for part in PARTS:
        if part != "method" and (further := options.pop(f"{part}_options", None)):
            options[part] = with_options(part, options.get(part, defaults[part]), further)
    if threads < 1 or (processes is not None and processes < 1):
        raise InputError("`processes` and `threads` must be at least 1.")
    labelled = label_methods(methods)
    check_method_options(own, labelled.values())
    chosen = {label: method_options(method, options, own) for label, method in labelled.items()}
    request = CompareRequest(given_path(out, "out"), chosen, seeds, equal_cost, budget)
    plan = plan_comparison(request, processes, threads)
    failed = train_missing(request, plan, launcher, processes, threads)
    raise_failed(failed)
    return read_comparison(request, plan)
