"""The command that compares methods on the user's own network and data: compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError, printable
from .calling import summary

if TYPE_CHECKING:
    from ..experiments.compare import Comparison
    from ..experiments.compare_plan import ComparePlan, CompareRequest


def compare(arguments: list[str]) -> None:
    """Train your network on your data with several methods and seeds, and compare their errors."""
    from jsonargparse import ArgumentParser

    from ..config.parsing import add_command, parse

    def compare_methods(
        methods: str = "Baseline,PCL",
        seeds: int = 3,
        out: str = "",
        equal_cost: bool = False,
        budget: str | None = None,
        launcher: Literal["local", "ray"] = "local",
        processes: int | None = None,
        threads: int = 1,
        dry_run: bool = False,
    ) -> None:
        """Compare, with the options of `coterie train` besides.

        Args:
            methods: names of methods, separated by commas. They are compared with Baseline if it is among them,
                else with the first.
            seeds: number of seeds of each method; if you raise it later, only the new seeds are trained.
            out: the directory of runs (required); repeat the command to continue.
            equal_cost: give cheaper methods more epochs, so that all cost as much as the most expensive one.
            budget: plan runs that take at most this time in total, such as 45s, 30min or 2h. Seeds beyond three
                are dropped first, then epochs.
            launcher: processes on this machine, or a Ray cluster (RAY_ADDRESS).
            processes: number of runs at the same time; by default one per GPU, without GPUs one per core.
            threads: CPU threads of each run.
            dry_run: print the plan with an estimate of its time on this machine, and train nothing.
        """
        from ..experiments.compare import plan_comparison, read_comparison, train_missing
        from ..experiments.compare_plan import CompareRequest
        from ..experiments.runner import print_status, raise_failed

        if threads < 1 or (processes is not None and processes < 1):
            raise InputError("--processes and --threads must be at least 1.")
        if not out:
            raise InputError("--out is missing: name the directory for these runs.")
        request = CompareRequest(Path(out), training_options(methods, words), seeds, equal_cost, budget)
        plan = plan_comparison(request, processes, threads)
        if dry_run:
            print_plan(request, plan, processes, threads)
            return
        print_status(f"{out}: {describe_plan(request, plan)}")
        failed = train_missing(request, plan, launcher, processes, threads)
        print_comparison(read_comparison(request, plan))
        raise_failed(failed)

    parser = ArgumentParser(
        prog="coterie compare",
        exit_on_error=False,
        allow_abbrev=False,
        description=f"{summary(compare)} All options of `coterie train` can be used too: --model, --data, "
        "--epochs, --mix, ... They apply to all methods; --method.NAME applies to the methods that have it.",
    )
    add_command(parser, compare_methods)
    own = [*signature(compare_methods).parameters, "help"]
    own_words, words = split_words(["--help" if word == "-h" else word for word in arguments], own.__contains__)
    compare_methods(**vars(parse(parser, own_words)))


def split_words(words: list[str], belongs: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Divide the words of a command line by the names of their options; a value follows its option."""
    chosen: list[str] = []
    others: list[str] = []
    current = others
    for word in words:
        if word.startswith("--"):
            current = chosen if belongs(_option(word)) else others
        current.append(word)
    return chosen, others


def _option(word: str) -> str:
    """Return `data.limit` for `--data.limit=5`."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def _is_of(options: list[str], name: str) -> bool:
    """Tell whether an option, or the one that it is a part of, is among these."""
    return any(name == option or name.startswith(f"{option}.") for option in options)


def training_options(methods: str, words: list[str]) -> dict[str, dict[str, Any]]:
    """Return the options of a training with each method, by label, from words that `coterie train` takes."""
    from ..config import options
    from ..config.parsing import accepted_options, parse
    from ..experiments.compare_methods import check_method_options, fitting_options, label_methods, method_class

    for word in words:
        if word.startswith("--") and _option(word) in ("method", "seed"):
            raise InputError(f"`coterie compare` takes --{_option(word)}s, not {word.partition('=')[0]}.")
    labelled = label_methods(methods)
    own, common = split_words(words, lambda name: name.startswith("method.") and name != "method.help")
    names = [_option(word).split(".")[1] for word in own if word.startswith("--")]
    check_method_options(names, labelled.values(), prefix="--")
    parser = options.parser("coterie compare")
    entries = {}
    for label, method in labelled.items():
        accepted = [f"method.{name}" for name in accepted_options(method_class(method))]
        mine, _ = split_words(own, partial(_is_of, accepted))
        config = parse(parser, [*common, "--method", str(method), *mine])
        entries[label] = fitting_options(method, options.from_namespace(parser, config).config)
    return entries


def describe_plan(request: CompareRequest, plan: ComparePlan) -> str:
    """Return the plan in a sentence."""
    epochs = sorted(set(plan.epochs.values()))
    each = f"{epochs[0]} epoch{'s' if epochs[0] > 1 else ''}"
    if len(epochs) > 1:
        each = f"{epochs[0]} to {epochs[-1]} epochs at equal cost"
    seeds = f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''}"
    planned = f", planned for {request.budget} ({request.seeds} seeds of {request.epochs} epochs were asked for)"
    unchanged = plan.seeds == request.seeds and epochs[0] == request.epochs
    return f"{', '.join(plan.epochs)}; {seeds} of {each}{'' if unchanged else planned}."


def print_plan(request: CompareRequest, plan: ComparePlan, processes: int | None, threads: int) -> None:
    """Print what would be trained, and how long it would take here."""
    from rich.console import Console

    from ..experiments.compare import slots_of
    from ..experiments.compare_plan import measure_plain, run_seconds
    from ..experiments.estimate import format_duration, wall_clock
    from ..experiments.run_state import run_state
    from ..report.table import Table, number, print_table, print_text, text

    seconds = run_seconds(request, plan, plan.speed or measure_plain(request, threads))
    rows, times = [], []
    for label, jobs in plan.jobs(request).items():
        missing = [job for job in jobs if run_state(request.out, job).kind != "done"]
        times += seconds[label][: len(missing)]
        cells = [number(len(jobs)), number(len(jobs) - len(missing)), number(plan.epochs[label])]
        duration = format_duration(seconds[label][0])
        rows.append([text(label), *cells, number(plan.costs[label], "{:.1f}"), text(duration)])
    console, slots = Console(), slots_of(request, processes, threads)
    columns = ["method", "runs", "done", "epochs", "cost of a step", "time of a run here"]
    print_table(Table(describe_plan(request, plan), columns, rows), console)
    all_in_all, least = format_duration(sum(times)), format_duration(wall_clock(times, slots))
    print_text(
        f"{len(times)} runs to train: {all_in_all} in all, at best {least} with {slots} at once. "
        "Cost: multiply-adds of a step, in those of the network alone.",
        console,
    )


def print_comparison(comparison: Comparison) -> None:
    """Print the table, the verdict, where the page is, and how to ship the winner."""
    from dataclasses import replace

    from rich.console import Console

    from ..report.table import print_table, print_text

    console, table = Console(), comparison.table
    print_table(replace(table, note=""), console)
    for sentence in (table.note, "", comparison.verdict, ""):
        print_text(sentence, console)
    if comparison.winner is None:
        return
    run = comparison.out / comparison.runs[comparison.winner][0].path.name
    for line in (
        f"{comparison.out / 'report.html'}: the page with all curves; open it in a browser.",
        f"To ship {comparison.winner}, of its first seed:",
        f"  coterie export {shlex.quote(str(run))} -o student.onnx",
    ):
        print(printable(line))
