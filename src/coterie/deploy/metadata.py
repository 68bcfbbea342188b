"""Metadata: what an exported file says about itself, checked when it is read, for files come from anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..errors import InputError, printable

KEY = "coterie"
"""Where each format keeps it, as one JSON text."""

LARGEST = 8192
"""The largest side of an input that is believed."""


@dataclass
class Metadata:
    """The contents of an exported file.

    predictor:  its name in the run: mean1, peer2, ensemble.
    model:      {name, options}: what `models.factory` makes the network from; different peers by commas.
    input:      how a picture is prepared; see `Data.preprocessing`.
    classes:    the names of the classes, in the order of the logits.
    ensemble:   {method, options, peers, cut}, where all peers are in the file; None for a single network.
    temperature: what the logits are divided by before the softmax; 1 without calibration.
    scores:     its figures on the images of `split`: at the end of training, or for int8 weights measured anew.
    provenance: the run: method, data, epochs, seed, versions, date.
    verified:   the comparison with the network it was made from.
    quantized:  what int8 weights cost in accuracy; None for float32.
    """

    predictor: str
    model: dict[str, Any]
    input: dict[str, Any]
    classes: list[str]
    ensemble: dict[str, Any] | None = None
    temperature: float = 1.0
    scores: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    verified: dict[str, Any] = field(default_factory=dict)
    quantized: dict[str, Any] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width = self.input["size"]
        return self.input["channels"], height, width

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def from_json(text: str | None, file: object) -> Metadata:
    """The metadata in a file, or an InputError that says what is wrong with it."""
    if not text:
        raise InputError(
            f"{file} was not written by `coterie export`: it says nothing about its input and classes."
        )
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is not a mapping")
        known = {f.name for f in fields(Metadata)}
        metadata = Metadata(**{name: value for name, value in found.items() if name in known})
        for what, holds in _CHECKS.items():
            if not holds(metadata):
                raise ValueError(f"its {what} cannot be right")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) and "its " in str(error) else "it is incomplete"
        raise InputError(f"The metadata of {file} is damaged ({reason}): export it again.") from None
    return metadata


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6


def _side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def _numbers(values: Any, count: int, accept: Callable[[Any], bool] = _number) -> bool:
    return isinstance(values, list) and len(values) == count and all(map(accept, values))


def _deviations(values: Any, count: int) -> bool:
    return _numbers(values, count) and min(values) > 0


def _names(values: Any) -> bool:
    # Names reach a terminal: no control characters.
    return (
        isinstance(values, list)
        and len(values) > 0
        and all(isinstance(v, str) and v == printable(v) for v in values)
    )


def _ensemble(value: Any) -> bool:
    return value is None or (
        isinstance(value["method"], str)
        and isinstance(value["options"], dict)
        and _side(value["peers"])
        and (value["cut"] is None or isinstance(value["cut"], str))
    )


_CHECKS: dict[str, Callable[[Metadata], bool]] = {
    "predictor": lambda m: isinstance(m.predictor, str) and m.predictor == printable(m.predictor),
    "model": lambda m: isinstance(m.model["name"], str) and isinstance(m.model["options"], dict),
    "channels": lambda m: _side(m.input["channels"]),
    "size": lambda m: _numbers(m.input["size"], 2, _side),
    "resize": lambda m: m.input["resize"] is None or _side(m.input["resize"]),
    "crop": lambda m: m.input["resize"] is None or m.input["resize"] >= max(m.input["size"]),
    "filter": lambda m: m.input.get("filter", "bilinear") in ("bilinear", "box"),
    "mean": lambda m: m.input["mean"] is m.input["std"] is None or _numbers(m.input["mean"], m.input["channels"]),
    "std": lambda m: m.input["mean"] is None or _deviations(m.input["std"], m.input["channels"]),
    "classes": lambda m: _names(m.classes),
    "temperature": lambda m: _number(m.temperature) and m.temperature > 0,
    "ensemble": lambda m: _ensemble(m.ensemble),
    "quantized": lambda m: m.quantized is None or isinstance(m.quantized, dict),
}
