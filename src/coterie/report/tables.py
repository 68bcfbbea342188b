"""Numbers as tables on a terminal, and the same as plain values for a program."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_predictors(result: dict[str, Any]) -> None:
    """The result of `evaluate` on a run."""
    table = Table(title=f"{result['run']} after {result['epochs']} epochs")
    for column in ("predictor", "error %", "top-5 error %", "NLL", "calibration error", "parameters", "MACs"):
        table.add_column(column, justify="left" if column == "predictor" else "right")
    for name, s in result["predictors"].items():
        row = [f"{s['error']:.2f}", f"{s['top5_error']:.2f}", f"{s['nll']:.3f}", f"{s['ece']:.4f}"]
        row += [f"{s['parameters']:,}", f"{s['macs']:,}"]
        deployed = name == result["deployed"]
        table.add_row(f"{name} (deployed)" if deployed else name, *row, style="bold" if deployed else None)
    console = Console()
    console.print(table)
    for kind, value in result["diversity"].items():
        agree = 100 * result["agreement"][kind]
        console.print(f"{kind} peers: diversity {value:.4f}, agreement {agree:.2f} %", highlight=False)


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
    Console().print(table)


def describe_models() -> dict[str, Any]:
    """Each network of ours with its parameters for 10 and 100 classes and its default cut."""
    from ..costs import parameters
    from ..models import available

    return {
        name: {
            "parameters": {str(c): parameters(make(num_classes=c)) for c in (10, 100)},
            "cut": getattr(make(), "default_cut", None),
        }
        for name, make in available().items()
    }


def print_models(found: dict[str, Any]) -> None:
    table = Table()
    for column in ("model", "parameters, 10 classes", "100 classes", "default cut"):
        table.add_column(column, justify="left" if column in ("model", "default cut") else "right")
    for name, entry in found.items():
        counts = [f"{count:,}" for count in entry["parameters"].values()]
        table.add_row(name, *counts, entry["cut"])
    Console().print(table)


def print_cuts(found: dict[str, Any]) -> None:
    """The result of `cuts.describe_cuts`."""
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
    Console().print(table)


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
    console.print(table)
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
