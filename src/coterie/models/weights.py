"""A weights file, or a run directory, becomes the trained network it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from .. import models
from ..errors import InputError, printable
from ..files import read_yaml
from ..trust import LIBRARY_MODEL, check_run
from .bounds import bounded_by
from .metadata import Metadata, read_metadata


def read_weights(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or by its ending (.pth, .pt) a state dict that torch saved; no code is run."""
    if not file.is_file():
        raise InputError(f"There is no weights file {file}.")
    if file.suffix.lower() in (".pth", ".pt"):
        return _read_state_dict(file)
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file} is not a safetensors file of weights: {error}.") from None


def _read_state_dict(file: Path) -> dict[str, Tensor]:
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever it meets
        why = "it holds more than weights" if "eights_only" in str(error) else "it is damaged"
        raise InputError(
            f"{file} is not a state dict: {why}; save it with torch.save(network.state_dict(), ...)."
        ) from None
    if not isinstance(weights, dict) or not all(isinstance(weight, Tensor) for weight in weights.values()):
        names = ", ".join(map(str, list(weights)[:3])) if isinstance(weights, dict) else type(weights).__name__
        raise InputError(f"{file} is not a state dict: it holds {printable(names)}, not weights alone.")
    return dict(weights)


def check_weights(
    file: Path, weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], network: str = "the network"
) -> None:
    """Raise an `InputError` where a file's weights have other names or shapes than a network's state dict."""
    missing = [name for name in expected if name not in weights]
    unknown = [name for name in weights if name not in expected]
    for problem, names in (("it lacks", missing), ("the network does not have", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InputError(f"{file} does not fit {network}: {problem} {', '.join(names[:3])}{more}.")
    for name, weight in expected.items():
        if weights[name].shape != weight.shape:
            shapes = f"{tuple(weights[name].shape)} in the file, {tuple(weight.shape)} in the network"
            raise InputError(f"{file} does not fit {network}: {name} is {shapes}.")


def name_network(file: Path, metadata: Metadata, model: str | None, option: str) -> str:
    """Return the name of a file's network: `model`, the value of this option, or what the file says.

    A file may name networks of Coterie, timm and torchvision; code of the user's own is run only if the user
    names it.
    """
    name: str = metadata.model["name"]
    if model is None and not _of_a_library(name):
        raise InputError(
            f"{file} holds the weights of '{name}', code that is not in the file: if you trust that code, name it "
            f"by `{option}`."
        )
    return model or name


def _of_a_library(name: str) -> bool:
    return re.fullmatch(rf"{LIBRARY_MODEL}(,{LIBRARY_MODEL})*", name) is not None


def load_trained(
    source: str, model: str | None, num_classes: int, shape: Sequence[int], task: str = "single_label"
) -> nn.Module:
    """Load the network of a finished run, or of a .safetensors file, for images of `shape`.

    `model` names the network where the file does not, or where it is code of a user's own. Of the user's own runs,
    and of those that are trusted, the code is run without it. A file that says that its network was trained for
    another task is refused.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"There is no run directory or weights file {source}.")
    file = path / "student.safetensors" if path.is_dir() else path
    metadata, options = read_metadata(file) if file.is_file() else None, dict[str, Any]()
    if metadata is not None and metadata.task != task:
        raise InputError(f"The network in {source} was trained for the task {metadata.task}, not for {task}.")
    if path.is_dir() and not file.is_file():
        _read_config(path)
        raise InputError(f"{source} holds no trained network yet: finish that run first.")
    if path.is_dir() and model is None and (metadata is None or not _of_a_library(metadata.model["name"])):
        config = _read_config(path)  # what is signed; older weights do not name their network either
        check_run(path, config)
        model, options = config["model"], config["model_options"]
    elif metadata is not None:
        model, options = name_network(file, metadata, model, "teacher_model"), metadata.model["options"]
    elif model is None:
        raise InputError(f"{source} holds weights alone: name the network they belong to (`teacher_model`).")
    weights = read_weights(file)
    channels, height, width = shape
    with bounded_by(file, weights):
        network = models.factory(model, num_classes, channels, options, (height, width), fresh=False)()
    expected = network.state_dict()
    differing = [name for name, w in expected.items() if name in weights and weights[name].shape != w.shape]
    if differing and all(
        expected[name].shape[:1] == (num_classes,) and weights[name].shape[1:] == expected[name].shape[1:]
        for name in differing
    ):
        classes = len(weights[differing[0]])
        raise InputError(f"The network in {source} has {classes} classes, but the data has {num_classes}.")
    check_weights(file, weights, expected, model)
    network.load_state_dict(weights)
    return network


def _read_config(run: Path) -> dict[str, Any]:
    """Read the options of a run, among them its model."""
    with suppress(OSError, ValueError):
        config = read_yaml(run / "config.yaml")
        if isinstance(config, dict) and {"model", "model_options"} <= config.keys():
            return config
    raise InputError(f"{run} is not a run directory: it has no config.yaml that names a model.")
