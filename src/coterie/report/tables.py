"""Numbers as tables on a terminal, and the same as plain values for a program."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .terminal import print_table

if TYPE_CHECKING:
    from torch import Tensor, nn

CUT_COLUMNS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "PCL": ("PCL", {}),
    "PCL_one_view": ("PCL", {"input_augmentation": False}),
    "ONE": ("ONE", {}),  # CL, OKDDip and FFL cost the same
    "DML": ("DML", {}),
}
"""The methods, with their options, whose cost `coterie cuts` shows."""


def print_predictors(result: dict[str, Any]) -> None:
    """The result of `evaluate` on a run."""
    table = Table(title=f"{escape(result['run'])} after {result['epochs']} epochs")
    columns = ["error %", "balanced error %", "top-5 error %", "NLL", "calibration error", "Brier"]
    columns += ["parameters", "MACs"]
    for column in ["predictor", *columns]:
        table.add_column(column, justify="left" if column == "predictor" else "right")
    for name, s in result["predictors"].items():
        row = [
            f"{s['error']:.2f}",
            f"{s['balanced_error']:.2f}",
            f"{s['top5_error']:.2f}",
            f"{s['nll']:.3f}",
            f"{s['ece']:.4f}",
            f"{s['brier']:.4f}",
        ]
        row += [f"{s['parameters']:,}", f"{s['macs']:,}"]
        deployed = name == result["deployed"]
        table.add_row(f"{name} (deployed)" if deployed else name, *row, style="bold" if deployed else None)
    console = Console()
    print_table(table, console)
    for kind, value in result["diversity"].items():
        agree = 100 * result["agreement"][kind]
        console.print(f"{kind} peers: diversity {value:.4f}, agreement {agree:.2f} %", highlight=False)


def print_calibrations(result: dict[str, Any]) -> None:
    """What a temperature does to each predictor."""
    fit = result["predictors"][result["deployed"]]["calibrated"]
    table = Table(
        title=f"calibrated: before, after; scored on {fit['scored_on']}", caption=f"Fit on {fit['fit_on']}."
    )
    for column in ("predictor", "temperature", "NLL", "calibration error", "Brier"):
        table.add_column(column, justify="left" if column == "predictor" else "right")
    for name, s in result["predictors"].items():
        before, after = s["calibrated"]["before"], s["calibrated"]["after"]
        cells = [f"{before[key]:.4f}, {after[key]:.4f}" for key in ("nll", "ece", "brier")]
        table.add_row(name, f"{s['calibrated']['temperature']:.3f}", *cells)
    print_table(table)


def print_per_class(result: dict[str, Any]) -> None:
    """The deployed predictor's errors class by class."""
    table = Table(title=f"{result['deployed']} (deployed), class by class")
    for column in ("class", "images", "missed %", "wrong guesses %", "most often taken for"):
        table.add_column(column, justify="left" if column in ("class", "most often taken for") else "right")
    for row in result["predictors"][result["deployed"]]["per_class"]:
        percents = ["-" if row[key] is None else f"{row[key]:.2f}" for key in ("error", "false")]
        table.add_row(escape(row["class"]), f"{row['images']:,}", *percents, escape(row["taken_for"] or "-"))
    print_table(table)


def print_costs(costs: dict[str, dict[str, Any]]) -> None:
    """Plain network, student and ensemble side by side."""
    table = Table(title="costs on this machine (ratios to the plain network in brackets)")
    table.add_column("network")
    for column in (
        "parameters",
        "MACs",
        "file",
        "torch, batch 1",
        "batch 64",
        "ONNX Runtime, batch 1",
        "batch 64",
    ):
        table.add_column(column, justify="right")
    plain = costs["plain"]
    for name, row in costs.items():
        cells = [f"{row[key]:,} ({row[key] / plain[key]:.2f})" for key in ("parameters", "macs")]
        cells.append(f"{row['bytes'] / 1024:,.0f} KiB")
        for runtime in ("torch", "onnx"):
            if runtime not in row:
                cells += ["-", "-"]
                continue
            speed, base = row[runtime], plain[runtime]
            latency, rate = speed["latency_ms"], speed["images_per_second"]
            cells.append(f"{latency:.2f} ms ({latency / base['latency_ms']:.2f})")
            cells.append(f"{rate:,.0f}/s ({rate / base['images_per_second']:.2f})")
        table.add_row(name, *cells)
    print_table(table)


def describe_methods() -> dict[str, Any]:
    """Each method's sentence, what it trains, and its options with their defaults."""
    from ..methods import available

    found = {}
    for name, method in sorted(available().items()):
        parameters = list(inspect.signature(method).parameters.values())[1:]
        found[name] = {
            "summary": (inspect.getdoc(method) or "").splitlines()[0],
            "trains": method.trains,
            "options": {p.name: None if p.default is p.empty else p.default for p in parameters},
        }
    return found


def print_methods(found: dict[str, Any]) -> None:
    table = Table(show_lines=True)
    for column in ("method", "what it is", "options (--method.NAME)"):
        table.add_column(column)
    for name, entry in found.items():
        options = ", ".join(f"{option}={value}" for option, value in entry["options"].items())
        table.add_row(f"[bold]{name}[/]\n{entry['trains']}", entry["summary"], options)
    Console().print(table)  # long sentences, to be wrapped


def describe_models() -> dict[str, Any]:
    """Each network of ours with its parameters for 10 and 100 classes and its default cut."""
    from ..models import networks
    from ..peers.cost import parameters

    return {
        name: {
            "parameters": {str(c): parameters(make(num_classes=c)) for c in (10, 100)},
            "cut": getattr(make(), "default_cut", None),
        }
        for name, make in networks().items()
    }


def print_models(found: dict[str, Any]) -> None:
    table = Table()
    for column in ("model", "parameters, 10 classes", "100 classes", "default cut"):
        table.add_column(column, justify="left" if column in ("model", "default cut") else "right")
    for name, entry in found.items():
        counts = [f"{count:,}" for count in entry["parameters"].values()]
        table.add_row(name, *counts, entry["cut"])
    print_table(table)


def training_costs(share: float, peers: int) -> dict[str, float]:
    """The cost of a training step by column, with so much of the network's work in each branch."""
    from ..methods import available

    methods = available()
    return {
        column: methods[name].step_cost(peers, share, options) for column, (name, options) in CUT_COLUMNS.items()
    }


def describe_cuts(name: str, model: nn.Module, example: Tensor, peers: int = 3) -> dict[str, Any]:
    """The listed cuts of a network as plain values, its default among them."""
    from ..peers.cost import macs_by_layer, parameters
    from ..peers.cuts import choose, list_cuts

    cuts = list_cuts(model, example)
    default = getattr(model, "default_cut", None) or (choose(cuts).name if cuts else None)
    return {
        "model": name,
        "input": list(example.shape[1:]),
        "parameters": parameters(model),
        "macs": sum(macs_by_layer(model, example[:1]).values()),
        "peers": peers,
        "default": default,
        "cuts": [{**asdict(cut), "training_costs": training_costs(cut.share, peers)} for cut in cuts],
    }


def print_cuts(found: dict[str, Any]) -> None:
    """The result of `describe_cuts`."""
    size = "x".join(map(str, found["input"]))
    table = Table(
        title=f"{found['model']}: {found['parameters']:,} parameters, {found['macs']:,} MACs at {size}",
        caption=f"Training cost with {found['peers']} peers, in steps of the plain network "
        "(a backward pass is two forward passes).",
    )
    table.add_column("cut")
    for column in (
        "shared parameters",
        "per peer",
        "shared MACs",
        "per peer",
        "PCL",
        "PCL, one view",
        "ONE",
        "DML",
    ):
        table.add_column(column, justify="right")
    for cut in found["cuts"]:
        default = cut["name"] == found["default"]
        counts = [cut[f"{whose}_{what}"] for what in ("parameters", "macs") for whose in ("shared", "peer")]
        costs = [f"{value:.2f}" for value in cut["training_costs"].values()]
        name = f"{cut['name']} (default)" if default else cut["name"]
        table.add_row(name, *(f"{count:,}" for count in counts), *costs, style="bold" if default else None)
    print_table(table)


def print_data(found: dict[str, Any]) -> None:
    """The result of `data.inspect`."""
    console = Console()
    splits = list(found["per_class"])
    table = Table(title=f"{found['classes']} classes, views of {' x '.join(map(str, found['view']))}")
    table.add_column("class")
    for split in splits:
        table.add_column(split, justify="right")
    for name in found["per_class"]["train"]:
        table.add_row(escape(name), *(f"{found['per_class'][split].get(name, 0):,}" for split in splits))
    table.add_section()
    table.add_row("all", *(f"{found['images'][split]:,}" for split in splits), style="bold")
    print_table(table, console)
    sizes = ", ".join(f"{kind} {width}x{height}" for kind, (width, height) in found["sizes"].items())
    lines = [f"sizes: {sizes}", f"bad files: {len(found['bad'])}"]
    lines += [f"  {name}: {reason}" for name, reason in found["bad"].items()]
    duplicates = found["duplicates"]
    lines += [f"the same image in two splits: {len(duplicates['between_splits'])}"]
    for where in duplicates["between_splits"][:20]:
        lines += ["  " + "; ".join(f"{split}: {', '.join(names)}" for split, names in where.items())]
    if len(duplicates["between_splits"]) > 20:
        lines += ["  ... (all of them with --json)"]
    lines += [f"repeated within a split: {duplicates['within_a_split']}", f"contact sheet: {found['sheet']}"]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
