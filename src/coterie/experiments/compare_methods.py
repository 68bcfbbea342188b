"""The methods of a comparison: each with those of the common options that it can take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..config.options import with_options
from ..config.parsing import accepted_options
from ..config.recipe import class_and_options
from ..config.specs import import_class, to_spec
from ..errors import InputError, unknown
from ..methods import Method, available

Options = Mapping[str, Any]
MethodChoice = str | type[Method] | Callable[..., Method]
"""A method by its name, its class or a `functools.partial` of it."""


def method_class(method: MethodChoice) -> type[Method]:
    """Return the class of a method that is given by its name, its class or a partial."""
    if not isinstance(method, str):
        return class_and_options(method)[0]
    methods = available()
    if method in methods:
        return methods[method]
    if "." not in method:
        raise unknown("method", method, methods)
    try:
        imported = import_class(method)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"The method {method} cannot be imported: {error}.") from None
    if not isinstance(imported, type | partial):
        raise InputError(f"{method} is no class of methods.")
    return class_and_options(imported)[0]


def method_label(method: MethodChoice) -> str:
    """Return `PCL`, or `PCL, temperature 4.0` for a partial."""
    options = method.keywords if isinstance(method, partial) else {}
    described = [f"{name} {to_spec(value)}" for name, value in options.items()]
    return ", ".join([method_class(method).__name__, *described])


def label_methods(methods: str | Sequence[MethodChoice]) -> dict[str, MethodChoice]:
    """Return the methods by label; the reference comes first: Baseline, or else the first.

    A text holds names, separated by commas.
    """
    if isinstance(methods, str):
        methods = [name.strip() for name in methods.split(",") if name.strip()]
    if not isinstance(methods, Sequence):
        raise InputError(f"`methods` must be a list of methods, or names separated by commas, not {methods!r}.")
    labelled: dict[str, MethodChoice] = {}
    for method in methods:
        if (label := method_label(method)) in labelled:
            raise InputError(f"`methods` names {label} twice.")
        labelled[label] = method
    if len(labelled) < 2:
        raise InputError("`methods` must name at least two methods, such as Baseline and PCL.")
    return dict(sorted(labelled.items(), key=lambda item: item[0] != "Baseline"))


def check_method_options(names: Iterable[str], methods: Iterable[MethodChoice], prefix: str = "") -> None:
    """Refuse an option that none of the methods has."""
    accepted = {option for method in methods for option in accepted_options(method_class(method))}
    for name in names:
        if name not in accepted:
            raise unknown(
                "option", f"{prefix}method.{name}", [f"{prefix}method.{each}" for each in sorted(accepted)]
            )


def fitting_options(method: MethodChoice, options: Options) -> dict[str, Any]:
    """Return the options without those that say nothing about a method of this kind.

    A cut is for branches; names of several networks are for methods that train several, others train the first.
    """
    trains, fitting = method_class(method).trains, dict(options)
    if trains != "branches" and fitting.get("cut") != "none":
        fitting.pop("cut", None)
    if trains == "one network" and isinstance(peers := fitting.get("peers"), str):
        fitting.pop("peers")
        fitting["model"] = peers.partition(",")[0].strip()
    return fitting


def method_options(method: MethodChoice, options: Options, own: Options) -> dict[str, Any]:
    """Return the options of a training with this method; of `own`, the options of methods, those that it has."""
    accepted = accepted_options(method_class(method))
    chosen = with_options("method", method, {name: value for name, value in own.items() if name in accepted})
    return {**fitting_options(method, options), "method": chosen}
