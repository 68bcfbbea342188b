"""Commands that show what there is to choose from: methods, models, cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .calling import print_json

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..report.table import Table

CUT_COSTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "PCL": ("PCL", {}),
    "PCL_one_view": ("PCL", {"input_augmentation": False}),
    "ONE": ("ONE", {}),  # CL, OKDDip and FFL cost the same
    "DML": ("DML", {}),
}
"""The methods, with their options, whose cost `coterie cuts` shows."""
CUT_COLUMNS = [
    ("cut", "name", "{}"),
    ("shared parameters", "shared_parameters", "{:,}"),
    ("per peer", "peer_parameters", "{:,}"),
    ("shared MACs", "shared_macs", "{:,}"),
    ("per peer", "peer_macs", "{:,}"),
    *((name.replace("_one_view", ", one view"), name, "{:.2f}") for name in CUT_COSTS),
]
MODEL_COLUMNS = [
    ("model", "name", "{}"),
    ("parameters, 10 classes", "10", "{:,}"),
    ("100 classes", "100", "{:,}"),
    ("default cut", "cut", "{}"),
]


def methods(names: Sequence[str] = (), json: bool = False) -> None:
    """List the methods and their options.

    Args:
        names: methods whose options are explained, by name or import path (my_module.MyMethod); by default all
            built-in methods are listed.
        json: print JSON.
    """
    from ..report.table import Table, print_table, text

    entries = describe_methods(names)
    if json:
        print_json(entries)
        return
    if names:
        for name, entry in entries.items():
            print_table(_options_table(name, entry))
        return
    rows = []
    for name, entry in entries.items():
        options = ", ".join(f"{option}={value}" for option, value in entry["options"].items())
        rows.append([text(f"{name}\n{entry['trains']}"), text(entry["summary"]), text(options)])
    print_table(Table("", ["method", "what it is", "options (--method.NAME)"], rows))


def describe_methods(names: Sequence[str] = ()) -> dict[str, Any]:
    """Return each method's sentence, what it trains, and its options with their defaults and what they are."""
    from inspect import getdoc

    from docstring_parser import parse

    from ..config.parsing import accepted_options
    from ..config.specs import own_defaults
    from ..experiments.compare_methods import method_class
    from ..methods import available
    from ..methods.base import method_summary

    classes = {name: method_class(name) for name in names} or dict(sorted(available().items()))
    entries = {}
    for name, method in classes.items():
        docstring, defaults = parse(getdoc(method) or ""), own_defaults(method)
        texts = {p.arg_name: " ".join((p.description or "").split()) for p in docstring.params}
        options = accepted_options(method)
        entries[name] = {
            "summary": method_summary(method),
            "trains": method.trains,
            "options": {option: defaults.get(option) for option in options},
            "required": [option for option in options if option not in defaults],
            "help": {option: texts.get(option, "") for option in options},
        }
    return entries


def _options_table(name: str, entry: dict[str, Any]) -> Table:
    """Show the options of a method with their texts."""
    from ..report.table import Table, text

    rows = [
        [
            text(f"--method.{option}"),
            text("(required)" if option in entry["required"] else default),
            text(entry["help"][option]),
        ]
        for option, default in entry["options"].items()
    ]
    title = f"{name} ({entry['trains']}): {entry['summary']}"
    return Table(title, ["option", "default", "what it is"], rows)


def models(json: bool = False) -> None:
    """List the networks and their parameter counts.

    Args:
        json: print JSON.
    """
    from ..models import networks
    from ..peers.cost import parameters
    from ..report.table import keyed_table, print_table

    entries: dict[str, Any] = {
        name: {
            "parameters": {str(c): parameters(make(num_classes=c)) for c in (10, 100)},
            "cut": getattr(make(), "default_cut", None),
        }
        for name, make in networks().items()
    }
    if json:
        print_json(entries)
        return
    rows = [{"name": name, "cut": entry["cut"], **entry["parameters"]} for name, entry in entries.items()]
    print_table(keyed_table("", MODEL_COLUMNS, rows))


def cuts(
    model: str,
    classes: int = 10,
    size: str | None = None,
    peers: int = 3,
    model_options: dict[str, Any] | None = None,
    json: bool = False,
) -> None:
    """List the modules where a network can be cut, with what peers share and what training costs.

    Args:
        model: the network; see `coterie models`.
        classes: the number of classes.
        size: the image size, such as 224 or 3x224x224; by default that of the network, or 3x32x32.
        peers: the number of peers, for the training cost.
        model_options: further options of the network.
        json: print JSON.
    """
    from ..models import factory
    from ..peers.build import example_for
    from ..report.table import keyed_table, print_table

    if min(classes, peers) < 1:
        raise InputError("--classes and --peers must be at least 1.")
    shape = _image_shape(size) if size is not None else None
    channels, sides = (shape[0], shape[1:]) if shape else (3, None)
    network = factory(model, classes, channels, model_options, sides, fresh=False)()
    entry = describe_cuts(model, network, example_for(network, shape), peers)
    if json:
        print_json(entry)
        return
    sides_text = "x".join(map(str, entry["input"]))
    title = f"{model}: {entry['parameters']:,} parameters, {entry['macs']:,} MACs at {sides_text}"
    note = (
        f"Training cost with {peers} peers, in steps of the plain network (a backward pass is two forward passes)."
    )
    rows = [{**cut, **cut["training_costs"]} for cut in entry["cuts"]]
    for row in rows:
        if row["name"] == entry["default"]:
            row["name"] += " (default)"
    print_table(keyed_table(title, CUT_COLUMNS, rows, note))


def describe_cuts(name: str, model: nn.Module, example: Tensor, peers: int = 3) -> dict[str, Any]:
    """Return the listed cuts of a network as plain values, its default among them."""
    from dataclasses import asdict

    from ..peers.cost import macs_by_layer, parameters
    from ..peers.cuts import choose, list_cuts

    listed = list_cuts(model, example)
    default = getattr(model, "default_cut", None) or (choose(listed).name if listed else None)
    return {
        "model": name,
        "input": list(example.shape[1:]),
        "parameters": parameters(model),
        "macs": sum(macs_by_layer(model, example[:1]).values()),
        "peers": peers,
        "default": default,
        "cuts": [{**asdict(cut), "training_costs": training_costs(cut.share, peers)} for cut in listed],
    }


def training_costs(share: float, peers: int) -> dict[str, float]:
    """Return the cost of a training step by column, with so much of the network's work in each branch."""
    from ..methods import available

    methods = available()
    return {
        column: methods[name].step_cost(peers, share, options) for column, (name, options) in CUT_COSTS.items()
    }


def _image_shape(size: str) -> tuple[int, int, int]:
    """'224' or '3x224x224'."""
    try:
        sides = [int(side) for side in size.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) == 1:
        sides = [3, *sides, *sides]
    if len(sides) != 3 or not 1 <= min(sides) <= max(sides) <= 4096:
        raise InputError(f"--size is a side or CxHxW, of at most 4096, as 224 or 3x224x224, not '{size}'.")
    return sides[0], sides[1], sides[2]
