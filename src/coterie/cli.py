"""The commands: everything else by name. Imported by nobody; torch is imported only where it is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import __version__
from .errors import Failure, InputError, Stopped, unknown


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
    if os.environ.get("RANK", "0") == "0":  # torchrun starts many
        print(f"{config.out}: trained; `coterie evaluate {config.out}` shows every predictor.")


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "methods": methods,
    "models": models,
}


def main(arguments: list[str] | None = None) -> None:
    """The entry point: an early end gives one sentence and its exit code."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own package in the working directory, as `python -m` finds it
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except InputError as error:
        print(f"coterie: {error}", file=sys.stderr)
        sys.exit(2)
    except Failure as error:
        print(f"coterie: {error}", file=sys.stderr)
        sys.exit(1)
    except Stopped as error:
        print(f"coterie: {error}", file=sys.stderr)
        sys.exit(75)  # EX_TEMPFAIL: try again
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
