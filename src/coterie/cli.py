"""The commands: everything else by name. Imported by nobody; torch is imported only where it is needed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import __version__
from .errors import InputError, unknown

if TYPE_CHECKING:
    from .recipe import Data  # read by jsonargparse too: with it every data set is known by name


def demo(out: str = "coterie-demo", seeds: int = 3) -> None:
    """Show the whole story on handwritten digits: a network alone, and the same network with peers.

    Args:
        out: the directory to write to.
        seeds: how many times each of the two is trained.
    """
    from . import demo as story

    story.run(Path(out), seeds)


def evaluate(
    run: str, data: Data | None = None, calibrate: bool = False, costs: bool = False, json: bool = False
) -> None:
    """Every predictor of a run: errors, likelihood, calibration, costs.

    Args:
        run: the run directory.
        data: another data set with the same classes to test on, instead of the run's own.
        calibrate: fit a temperature on one half of the test images, score it on the other.
        costs: measure size and speed of plain network, student and ensemble; kept in the run's costs.json.
        json: print JSON.
    """
    from .deploy.side_by_side import of_run as costs_of_run
    from .evaluate import of_run
    from .report.tables import print_calibrations, print_costs, print_per_class, print_predictors

    result = of_run(Path(run), data, calibrate)
    if costs:
        result["costs"] = costs_of_run(Path(run))
    if json:
        print_json(result)
        return
    print_predictors(result)
    print_per_class(result)
    if calibrate:
        print_calibrations(result)
    if costs:
        print_costs(result["costs"])


def export(
    run: str,
    format: Literal["safetensors", "onnx", "pt2"] = "safetensors",
    predictor: str | None = None,
    output: str | None = None,
    quantize: Literal["int8"] | None = None,
    calibrate: bool = False,
    size: int | None = None,
    json: bool = False,
) -> None:
    """Write a run's network as a file to ship, shown to compute the same.

    Args:
        run: the run directory.
        format: weights for your own class, or a program for ONNX Runtime or torch.
        predictor: mean1, peer2, ensemble, ...; by default the one to deploy.
        output: the file to write (-o); by default RUN/PREDICTOR.FORMAT.
        quantize: 8-bit weights and activations, for ONNX; the loss of accuracy is measured.
        calibrate: store a temperature that makes the probabilities honest.
        size: side of the images, for networks that take others than those they were trained on.
        json: print JSON.
    """
    from dataclasses import asdict

    from .export import export as write
    from .report.predictions import describe_export

    file = Path(output) if output else None
    done = write(Path(run), format, predictor, file, quantize is not None, calibrate, size)
    if json:
        print_json({"file": str(done.file), "card": str(done.card), **asdict(done.metadata)})
    else:
        print(describe_export(done))


def predict(
    file: str,
    images: list[str],
    top: int = 5,
    batch: int = 64,
    model: str | None = None,
    json: bool = False,
    csv: bool = False,
) -> None:
    """Labels with probabilities from an exported file alone.

    Args:
        file: what `coterie export` wrote, in any format.
        images: pictures, folders of them, or - for names from the standard input, one per line.
        top: how many labels.
        batch: pictures that go through the network together.
        model: the network of a safetensors file, where it is your own code.
        json: print JSON.
        csv: print CSV.
    """
    from .deploy.formats import load
    from .predict import predict as run
    from .report.predictions import show

    loaded = load(Path(file), model)
    show(run(loaded, images, top, batch), "json" if json else "csv" if csv else "table")


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
    print(f"{config.out}: trained; `coterie evaluate {config.out}` shows every predictor.")


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "export": export,
    "predict": predict,
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
    several = [name for name, p in inspect.signature(command).parameters.items() if p.annotation == "list[str]"]
    parser.add_function_arguments(command, as_positional=True, skip=set(several))
    for argument in several:
        parser.add_argument(argument, nargs="+", type=str, help=_described(command, argument))
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


def _described(command: Callable[..., None], argument: str) -> str | None:
    from docstring_parser import parse as parse_docstring

    described = {p.arg_name: p.description for p in parse_docstring(command.__doc__ or "").params}
    return described.get(argument)


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))
