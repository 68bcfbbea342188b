"""The commands: everything else by name. Imported by nobody; torch is imported only where it is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from . import __version__
from .errors import InputError, unknown


def demo(out: str = "coterie-demo", seeds: int = 3) -> None:
    """Show the whole story on handwritten digits: a network alone, and the same network with peers.

    Args:
        out: the directory to write to.
        seeds: how many times each of the two is trained.
    """
    from . import demo as story

    story.run(Path(out), seeds)


def evaluate(run: str, json: bool = False) -> None:
    """Every predictor of a run: errors, likelihood, calibration, costs.

    Args:
        run: the run directory.
        json: print JSON.
    """
    from .evaluate import of_run
    from .report.tables import print_predictors

    result = of_run(Path(run))
    print_json(result) if json else print_predictors(result)


def methods(json: bool = False) -> None:
    """The methods and their options.

    Args:
        json: print JSON.
    """
    from .report.tables import describe_methods, print_methods

    found = describe_methods()
    print_json(found) if json else print_methods(found)


def models(json: bool = False) -> None:
    """The networks and their parameter counts.

    Args:
        json: print JSON.
    """
    from .report.tables import describe_models, print_models

    found = describe_models()
    print_json(found) if json else print_models(found)


def reproduce(
    what: str,
    protocol: str = "mini",
    only: str = "",
    seeds: int = 3,
    out: str = "",
    data_root: str = "data",
    launcher: Literal["local", "ray"] = "local",
    processes: int | None = None,
    threads: int = 1,
    shard: str = "",
    dry_run: bool = False,
    show: bool = False,
    format: Literal["table", "markdown", "json"] = "table",
    into: str = "",
) -> None:
    """A table or figure of the paper: train what is missing of it, show ours beside the paper's.

    Args:
        what: table1, table2, table3, table4, fig3, fig4 or fig5.
        protocol: paper, mini, mini100 or smoke.
        only: comma-separated words that a cell must all have in its row, setting, method, network or data.
        seeds: runs of each cell.
        out: the directory of runs; by default results/PROTOCOL.
        data_root: where the data sets are; ImageNet is the folder `imagenet` in there.
        launcher: processes on this machine, or a Ray cluster (RAY_ADDRESS).
        processes: how many runs at once; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each run.
        shard: i/n does every n-th run from number i on, for batch systems.
        dry_run: list the runs, with an estimate of their time here.
        show: train nothing, show what there is.
        format: a table for the terminal, Markdown or JSON.
        into: write the Markdown table to its place in this document instead.
    """
    from .experiments.reproduce import reproduce as run

    failed = run(
        what,
        protocol,
        only,
        seeds,
        out,
        data_root,
        launcher,
        processes,
        threads,
        shard,
        dry_run,
        show,
        format,
        into,
    )
    for name, reason in failed.items():
        print(f"coterie: {name} failed: {reason}", file=sys.stderr)
    if failed:
        sys.exit(1)


def train(arguments: list[str]) -> None:
    """Train; the same command again continues."""
    from . import recipe
    from .arguments import parse
    from .train import train as run

    parser = recipe.parser()
    parser.add_argument("--out", type=str, help="the run directory (required).")
    config, given = parse(parser, arguments), parse(parser, arguments, defaults=False)
    if config.out is None:
        raise InputError("--out is missing: name the directory for this run.")
    made = recipe.from_namespace(parser, config, given)
    run(made, Path(config.out), made.method_class.__name__)
    print(f"{config.out}: trained; `coterie evaluate {config.out}` shows every predictor.")


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "reproduce": reproduce,
    "methods": methods,
    "models": models,
}


def main(arguments: list[str] | None = None) -> None:
    """The entry point: bad input gives one sentence and exit code 2."""
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except InputError as error:
        print(f"coterie: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return
    name, *rest = arguments
    if name == "--version":
        print(f"coterie {__version__}")
        return
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    command = COMMANDS[name]
    if command is train:
        train(rest)
        return
    from jsonargparse import ArgumentParser

    from .arguments import parse

    parser = ArgumentParser(prog=f"coterie {name}", exit_on_error=False, description=_summary(command))
    parser.add_function_arguments(command, as_positional=True)
    config = parse(parser, rest)
    command(**vars(parser.instantiate(config)))


def _help() -> str:
    rows = "\n".join(f"  {name:<10} {_summary(command)}" for name, command in COMMANDS.items())
    return (
        "Coterie: train the network you will deploy better, without a teacher, by giving it peers.\n\n"
        f"usage: coterie COMMAND [OPTIONS]\n\n{rows}\n\n"
        "`coterie COMMAND --help` shows its options; start with `coterie demo`."
    )


def _summary(command: Callable[..., None]) -> str:
    return (command.__doc__ or "").strip().splitlines()[0]


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))
