"""The commands: everything else by name. Imported by nobody; torch is imported only where it is needed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import __version__
from .errors import Failure, InputError, Stopped, unknown

if TYPE_CHECKING:
    from .recipe import Data  # read by jsonargparse too: with it every data set is known by name


def bench(quick: bool = False, only: str = "", output: str | None = None, json: bool = False) -> None:
    """Speed and memory on this machine, as ratios beside what they should be.

    Args:
        quick: a small network and few turns: under two minutes instead of a quarter of an hour.
        only: comma-separated sections: startup, steps, floor, reference, parts, growth.
        output: write the result to this JSON file too (-o).
        json: print JSON.
    """
    from .bench.bench import bench as measure
    from .bench.bench import show

    result = measure(quick, only, Path(output) if output else None)
    print_json(result) if json else show(result)


def cuts(
    model: str,
    classes: int = 10,
    size: str | None = None,
    peers: int = 3,
    model_options: dict[str, Any] | None = None,
    json: bool = False,
) -> None:
    """Where a network can be cut, what is shared and what it costs.

    Args:
        model: the network; see `coterie models`.
        classes: how many.
        size: of the images, as 224 or 3x224x224; by default what the network declares, or 3x32x32.
        peers: for the costs of training.
        model_options: further options of the network.
        json: print JSON.
    """
    from .cuts import describe_cuts
    from .models import factory
    from .peers import example_for
    from .report.tables import print_cuts

    shape = _image_shape(size) if size is not None else None
    make = factory(model, classes, shape[0] if shape else 3, model_options, shape[1:] if shape else None)
    network = make()
    found = describe_cuts(model, network, example_for(network, shape), peers)
    print_json(found) if json else print_cuts(found)


def _image_shape(size: str) -> tuple[int, int, int]:
    """'224' or '3x224x224'."""
    try:
        sides = [int(side) for side in size.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) == 1:
        sides = [3, *sides, *sides]
    if len(sides) != 3 or min(sides) < 1:
        raise InputError(f"--size is a side or CxHxW, as 224 or 3x224x224, not '{size}'.")
    return sides[0], sides[1], sides[2]


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
        calibrate: fit a temperature on the run's held-out images (else on half of the test images).
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
        calibrate: store a temperature that makes the probabilities honest, fit on the run's held-out images.
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
    if failed:
        reasons = "; ".join(f"{name} failed: {reason}" for name, reason in failed.items())
        raise Failure(f"{reasons}; the same command tries again.")


def report(
    runs: list[str],
    output: str | None = None,
    text: bool = False,
    format: Literal["markdown", "csv", "latex"] | None = None,
    watch: bool = False,
) -> None:
    """One page that shows what happened: tables, curves, costs, mistakes.

    Args:
        runs: run directories, or directories that contain some, such as those of `coterie reproduce`.
        output: the file to write; by default report.html.
        text: print the tables here instead.
        format: write the tables for a paper instead, to the file or here.
        watch: write the page again whenever the runs have something new, until interrupted.
    """
    from .experiments.sections import beside_the_paper
    from .report import formats, page

    if text + (format is not None) + watch > 1:
        raise InputError("--text, --format and --watch exclude each other: choose one.")
    paths, file = [Path(run) for run in runs], Path(output or "report.html")
    if watch:
        print(f"{file} follows {', '.join(runs)}; Ctrl-C ends this.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            page.watch(paths, file, beside_the_paper)
        return
    paper = beside_the_paper(paths)
    if text:
        formats.print_report(page.compose(paths, paper))
    elif format is not None and output is None:
        print(formats.written(page.compose(paths, paper), format), end="")
    elif format is not None:
        page.save(file, formats.written(page.compose(paths, paper), format))
    else:
        page.write(paths, file, paper=paper)
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
    if os.environ.get("RANK", "0") == "0":  # torchrun starts many
        print(f"{config.out}: trained; `coterie evaluate {config.out}` shows every predictor.")


def data(arguments: list[str]) -> None:
    """Fetch a data set (`data cifar100`) or look into one (`data inspect NAME_OR_FOLDER`)."""
    from .data import available, find
    from .data.cifar import Cifar

    names = {name: found for name, found in available().items() if issubclass(found, Cifar)}
    what, *rest = arguments or ["--help"]
    if what in ("-h", "--help"):
        print(
            "usage: coterie data NAME [--root DIR] [--url URL]      fetch one of: " + ", ".join(names) + "\n"
            "       coterie data inspect NAME_OR_FOLDER [OPTIONS]   what is in a set; --help shows its options"
        )
    elif what == "inspect":
        if not rest or rest[0].startswith("-"):
            raise InputError("Name what to inspect: `coterie data inspect NAME_OR_FOLDER`.")
        source, preset = find(rest[0])
        _inspect(source, preset, rest[1:])
    elif what in names:
        from .data.fetch import fetch

        def fetched(root: str = "data", url: str | None = None) -> None:
            """Fetch the official release, checksummed.

            Args:
                root: where to put it.
                url: a mirror of the official archive.
            """
            print(fetch(names[what], Path(root), url))

        _call(f"data {what}", fetched, rest)
    else:
        raise unknown("data set to fetch", what, [*names, "inspect"])


def _inspect(source: Any, preset: dict[str, Any], arguments: list[str]) -> None:
    from jsonargparse import ArgumentParser

    from .arguments import parse
    from .data import inspect
    from .report.tables import print_data

    def look(views: int = 3, images: int = 8, sheet: str = "contact-sheet.png", json: bool = False) -> None:
        """Counts per class, sizes, bad files, duplicates between splits, and a sheet of views.

        Args:
            views: how many views of each image the sheet shows.
            images: how many images it shows.
            sheet: the PNG file to write.
            json: print JSON.
        """
        if min(views, images) < 1:
            raise InputError("--views and --images must be at least 1.")
        made.load()
        found = inspect.inspect(made)
        Path(sheet).parent.mkdir(parents=True, exist_ok=True)
        inspect.contact_sheet(made, views, images).save(sheet, "PNG")
        found["sheet"] = sheet
        print_json(found) if json else print_data(found)

    parser = ArgumentParser(prog="coterie data inspect", exit_on_error=False, description=_summary(look))
    parser.add_function_arguments(look)
    own = parser.add_class_arguments(source, "data", skip=set(preset))
    config = parse(parser, _prefixed(arguments, [name.partition(".")[2] for name in own]))
    made = source(**preset, **vars(config.pop("data", None) or type(config)()))
    look(**vars(config))


def _prefixed(arguments: list[str], names: list[str]) -> list[str]:
    """The set's own options may be written without the `data.` that `coterie train` needs."""
    return [
        f"--data.{a[2:]}" if a[:2] == "--" and a[2:].partition("=")[0].replace("-", "_") in names else a
        for a in arguments
    ]


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "data": data,
    "evaluate": evaluate,
    "export": export,
    "predict": predict,
    "reproduce": reproduce,
    "report": report,
    "methods": methods,
    "models": models,
    "cuts": cuts,
    "bench": bench,
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
    if command in (train, data):
        command(rest)
    else:
        _call(name, command, rest)


def _call(name: str, command: Callable[..., None], arguments: list[str]) -> None:
    """Run a command whose options are its signature."""
    from jsonargparse import ArgumentParser

    from .arguments import add_command, parse

    parser = ArgumentParser(prog=f"coterie {name}", exit_on_error=False, description=_summary(command))
    add_command(parser, command)
    config = parse(parser, arguments)
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
