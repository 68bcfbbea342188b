"""The commands: everything else by name. Imported by nobody; torch is imported only where it is needed."""

from __future__ import annotations

import contextlib
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


def report(
    runs: list[str],
    output: str | None = None,
    text: bool = False,
    format: Literal["markdown", "csv", "latex"] | None = None,
    watch: bool = False,
) -> None:
    """One page that shows what happened: tables, curves, costs, mistakes.

    Args:
        runs: run directories, or directories that contain some.
        output: the file to write; by default report.html.
        text: print the tables here instead.
        format: write the tables for a paper instead, to the file or here.
        watch: write the page again whenever the runs have something new, until interrupted.
    """
    from .report import formats, page

    if text + (format is not None) + watch > 1:
        raise InputError("--text, --format and --watch exclude each other: choose one.")
    paths, file = [Path(run) for run in runs], Path(output or "report.html")
    if watch:
        print(f"{file} follows {', '.join(runs)}; Ctrl-C ends this.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            page.watch(paths, file)
        return
    if text:
        formats.print_report(page.compose(paths))
    elif format is not None and output is None:
        print(formats.written(page.compose(paths), format), end="")
    elif format is not None:
        page.save(file, formats.written(page.compose(paths), format))
    else:
        page.write(paths, file)
        print(f"{file}: open it in a browser; it needs nothing else.")


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
    "report": report,
    "methods": methods,
    "models": models,
}


def main(arguments: list[str] | None = None) -> None:
    """The entry point: bad input gives one sentence and exit code 2."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own package in the working directory, as `python -m` finds it
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

    from .arguments import add_command, parse

    parser = ArgumentParser(prog=f"coterie {name}", exit_on_error=False, description=_summary(command))
    add_command(parser, command)
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
