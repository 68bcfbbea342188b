"""Metadata: what a file of a network says about itself, checked when it is read, for files come from anywhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import InputError, printable

METADATA_KEY = "coterie"
"""Where each format keeps it, as one JSON text."""

LARGEST_SIDE = 8192
"""The largest side of an input that is accepted."""
LARGEST_INPUT = 2**26
"""The most numbers in one input."""
LARGEST_OPTION = 100_000
"""The largest number among the options of a network or a method, and the most items and characters of one."""
MOST_PEERS = 256
LEAST_TEMPERATURE = 1e-6
"""Logits divided by less overflow."""


@dataclass
class Metadata:
    """The contents of a run's student.safetensors or of an exported file.

    predictor:  its name in the run: mean1, peer2, ensemble.
    model:      {name, options}: the arguments of `models.factory`; different peers by commas.
    input:      how a picture is prepared; see `Data.preprocessing`.
    classes:    the names of the classes, in the order of the logits.
    ensemble:   {method, options, peers, cut}, where all peers are in the file; None for a single network.
    temperature: a divisor of the logits before the softmax or sigmoid; 1 without calibration.
    task:       single_label (softmax) or multi_label (a sigmoid for each class).
    thresholds: of multi_label, above which probability each class is a label of the image; None for 0.5.
    thresholds_from: the images that the thresholds were fitted on, in words.
    scores:     of an export, its figures on the images of `split`: at the end of training, or measured for int8.
    provenance: the run: method, data, epochs, seed; of an export, versions and date too.
    verified:   of an export, the comparison with the trained network.
    quantized:  the cost of int8 weights in accuracy; None for float32.
    """

    predictor: str
    model: dict[str, Any]
    input: dict[str, Any]
    classes: list[str]
    ensemble: dict[str, Any] | None = None
    temperature: float = 1.0
    task: str = "single_label"
    thresholds: list[float] | None = None
    thresholds_from: str | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    verified: dict[str, Any] = field(default_factory=dict)
    quantized: dict[str, Any] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width = self.input["size"]
        return self.input["channels"], height, width

    def to_json(self) -> str:
        values = asdict(self)
        if self.task == "single_label":  # files of one label an image are as they were before there were others
            values = {
                name: v for name, v in values.items() if name not in ("task", "thresholds", "thresholds_from")
            }
        return json.dumps(values, sort_keys=True)


def parse_metadata(text: str | None, file: object) -> Metadata:
    """Return the metadata that a file holds, or raise an InputError that says what is wrong with it."""
    if not text:
        raise InputError(
            f"{file} was not written by `coterie train` or `coterie export`: it says nothing about its input and "
            "classes."
        )
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it is not a mapping")
        names = {f.name for f in fields(Metadata)}
        metadata = Metadata(**{name: value for name, value in values.items() if name in names})
        for name, holds in _CHECKS.items():
            if not holds(metadata):
                raise ValueError(f"its {name} cannot be right")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = str(error) if isinstance(error, ValueError) and "its " in str(error) else "it is incomplete"
        raise InputError(f"The metadata of {file} is damaged ({problem}): export it again.") from None
    return metadata


def read_metadata(file: Path) -> Metadata | None:
    """Return the metadata of a safetensors file, or None where it holds weights alone."""
    try:
        with safe_open(file, framework="pt") as stream:
            text = (stream.metadata() or {}).get(METADATA_KEY)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file} is damaged or not a safetensors file of weights: {error}.") from None
    return None if text is None else parse_metadata(text, file)


def encode_weights(weights: Mapping[str, Tensor], metadata: Metadata) -> bytes:
    """Return a safetensors file of these weights, a copy of each: a file refuses weights that are tied."""
    copies = {name: weight.detach().cpu().contiguous().clone() for name, weight in weights.items()}
    # One key only: the order of several would differ from process to process.
    return save(copies, {METADATA_KEY: metadata.to_json()})


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6


def _part(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _bounded(value: Any) -> bool:
    """Tell whether options are of a size that a network can have been trained with."""
    if isinstance(value, dict):
        return all(map(_bounded, value.values()))
    if isinstance(value, list | str):
        return len(value) <= LARGEST_OPTION and (isinstance(value, str) or all(map(_bounded, value)))
    return value is None or abs(value) <= LARGEST_OPTION


def _side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_SIDE


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
        and _bounded(value["options"])
        and _side(value["peers"])
        and value["peers"] <= MOST_PEERS
        and (value["cut"] is None or isinstance(value["cut"], str))
    )


_CHECKS: dict[str, Callable[[Metadata], bool]] = {
    "predictor": lambda m: isinstance(m.predictor, str) and m.predictor == printable(m.predictor),
    "model": lambda m: isinstance(m.model["name"], str) and isinstance(m.model["options"], dict),
    "options": lambda m: _bounded(m.model["options"]),
    "channels": lambda m: _side(m.input["channels"]),
    "size": lambda m: _numbers(m.input["size"], 2, _side),
    "number of pixels": lambda m: math.prod(m.shape) <= LARGEST_INPUT,
    "resize": lambda m: m.input["resize"] is None or _side(m.input["resize"]),
    "crop": lambda m: m.input["resize"] is None or m.input["resize"] >= max(m.input["size"]),
    "filter": lambda m: m.input.get("filter", "bilinear") in ("bilinear", "box"),
    "mean": lambda m: m.input["mean"] is m.input["std"] is None or _numbers(m.input["mean"], m.input["channels"]),
    "std": lambda m: m.input["mean"] is None or _deviations(m.input["std"], m.input["channels"]),
    "classes": lambda m: _names(m.classes),
    "temperature": lambda m: _number(m.temperature) and m.temperature >= LEAST_TEMPERATURE,
    "task": lambda m: m.task in ("single_label", "multi_label"),
    "thresholds": lambda m: m.thresholds is None or _numbers(m.thresholds, len(m.classes), _part),
    "thresholds_from": lambda m: m.thresholds_from is None or _names([m.thresholds_from]),
    "ensemble": lambda m: _ensemble(m.ensemble),
    "quantized": lambda m: m.quantized is None or isinstance(m.quantized, dict),
}
