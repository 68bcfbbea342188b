"""A run directory or a weights file becomes the trained network it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from .. import models
from ..errors import InputError


def load(source: str, model: str | None, num_classes: int, shape: Sequence[int]) -> nn.Module:
    """The network, for images of this shape, of a finished run or of a .safetensors file of `model`'s weights."""
    path, options = Path(source), dict[str, Any]()
    if not path.exists():
        raise InputError(f"There is no run directory or weights file {source}.")
    if path.is_dir():
        model, options = _described(path)
        path = path / "student.safetensors"
        if not path.is_file():
            raise InputError(f"{source} holds no trained network yet: finish that run first.")
    elif model is None:
        raise InputError(f"{source} holds weights alone: name the network they belong to (`teacher_model`).")
    try:
        weights = load_file(path)
    except (SafetensorError, OSError):
        raise InputError(f"{path} is not a safetensors file of weights.") from None
    channels, height, width = shape
    network = models.factory(model, num_classes, channels, options, (height, width), fresh=False)()
    _check(source, model, weights, network.state_dict(), num_classes)
    network.load_state_dict(weights)
    return network


def _described(run: Path) -> tuple[str, dict[str, Any]]:
    try:
        config = yaml.safe_load((run / "config.yaml").read_text())
        return config["model"], config["model_options"]
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        raise InputError(f"{run} is not a run directory: it has no config.yaml that names a model.") from None


def _check(
    source: str, model: str, found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], num_classes: int
) -> None:
    """The same names and shapes, or a sentence that says what differs."""
    odd = sorted(found.keys() ^ wanted.keys())
    if odd:
        raise InputError(f"The weights in {source} are not those of {model}: {odd[0]} is only in one of them.")
    differ = [name for name in wanted if found[name].shape != wanted[name].shape]
    if not differ:
        return
    name = differ[0]
    theirs, ours = found[name].shape, wanted[name].shape
    if all(wanted[n].shape[:1] == (num_classes,) and found[n].shape[1:] == wanted[n].shape[1:] for n in differ):
        raise InputError(f"The network in {source} knows {theirs[0]} classes, but here there are {num_classes}.")
    raise InputError(
        f"The weights in {source} do not fit {model} on these images: {name} has the shape {tuple(theirs)} "
        f"instead of {tuple(ours)}."
    )
