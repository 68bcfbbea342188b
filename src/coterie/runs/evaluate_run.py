"""Evaluate every predictor of a trained run, and write evaluation.json for the report."""

from __future__ import annotations

import base64
import copy
import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config.recipe import Recipe
from ..data import Data
from ..data.batch import SplitName
from ..data.device import synchronise
from ..data.inspection import to_picture
from ..errors import InputError, reason, warn
from ..files import write
from ..methods import Method
from ..metrics.evaluate import calibrations, evaluate
from ..metrics.mistakes import Mistake, Mistakes
from ..peers.cost import interleaved, macs, parameters, plain_training_macs, training_macs
from ..peers.net import standalone
from ..peers.trace import evaluating
from .rebuild import restored

MISTAKES, LARGEST = 12, 96
"""How many mistakes evaluation.json keeps, and the longest side of their pictures in pixels."""


def evaluate_run(
    directory: Path,
    data: Data | None = None,
    calibrated: bool = False,
    objects: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Evaluate a trained run's predictors on its test set, with what each one costs, and write evaluation.json.

    `data` is another set with the same classes to test on: then nothing is written. `calibrated` adds each
    predictor's `calibrations`. `objects` are options of the run that were Python objects.
    """
    recipe, method, epochs = restored(directory, objects)
    if data is not None:
        data.resolve_seed(recipe.seed)
    tested = recipe.data if data is None else _same_classes(recipe.data, data)
    device = recipe.torch_device()
    scored = _score(method.to(device), tested, "test", device)
    if data is None:
        write_evaluation(directory, recipe, method, epochs, scored if tested.eval_split == "test" else None)
    result, _ = scored
    if calibrated:
        for name, calibration in calibrations(method, recipe.data, device, tested).items():
            result["predictors"][name]["calibrated"] = calibration
    return {"run": str(directory), "data": tested.title, "epochs": epochs, **result}


def write_evaluation(
    directory: Path,
    recipe: Recipe,
    method: Method,
    epochs: int,
    scored: tuple[dict[str, Any], Mistakes] | None = None,
) -> None:
    """Write evaluation.json for the split that training reported on; warn if that fails.

    `scored` are the scores and mistakes on that split, if they are computed already.
    """
    data, file = recipe.data, directory / "evaluation.json"
    try:
        method = copy.deepcopy(method)  # not compiled, and the trained weights stay as they are
        method.prepare()  # the cost of a step includes that of a teacher
        device = next(method.parameters()).device
        if scored is None:
            scored = _score(method, data, data.eval_split, device)
        scores, mistakes = copy.deepcopy(scored[0]), scored[1]
        networks = method.predictors()
        used = {name: networks[name] for name in (method.deployed, "ensemble") if name in networks}
        for name, milliseconds in _latencies(used, data.shape, device).items():
            scores["predictors"][name]["latency_ms"] = milliseconds
        for name in scores["predictors"].keys() - {method.deployed}:
            del scores["predictors"][name]["per_class"], scores["predictors"][name]["bins"]
        content = {
            "epochs": epochs,
            "split": data.eval_split,
            "images": mistakes.seen,
            **scores,
            "mistakes": [_describe(mistake, data) for mistake in mistakes.worst],
            "train_images": data.train_size,
            "training_macs": training_macs(method, data.shape, method.views, len(data.classes)),
            "plain_training_macs": plain_training_macs(standalone(method.net.peers[0]), data.shape),
        }
        write(file, json.dumps(content) + "\n")
    except Exception as error:  # the run is complete without it
        warn(f"{file} could not be written ({type(error).__name__}: {reason(error)}).")


def _score(method: Method, data: Data, split: SplitName, device: torch.device) -> tuple[dict[str, Any], Mistakes]:
    """Return the scores of every predictor on a split, and the deployed one's most confident mistakes."""
    mistakes = Mistakes(MISTAKES)
    batches = data.test_batches(1000, split=split, device=device)
    result = evaluate(method, batches, device, classes=data.classes, mistakes=mistakes)
    for name, network in method.predictors().items():
        result["predictors"][name] |= {"parameters": parameters(network), "macs": macs(network, data.shape)}
    return result, mistakes


def _latencies(networks: dict[str, nn.Module], shape: tuple[int, ...], device: torch.device) -> dict[str, float]:
    """Return the median latency of each network for one image, in milliseconds."""
    image = torch.zeros(1, *shape, device=device)

    def run(network: nn.Module) -> None:
        network(image)
        synchronise(device)

    with evaluating(*networks.values()):
        seconds = interleaved({name: partial(run, network) for name, network in networks.items()}, 0.05)
    return {name: 1000 * value for name, value in seconds.items()}


def _describe(mistake: Mistake, data: Data) -> dict[str, Any]:
    picture, file = to_picture(mistake.pixels, data), io.BytesIO()
    picture.thumbnail((LARGEST, LARGEST))
    picture.save(file, "PNG")
    return {
        "image": mistake.image,
        "label": data.classes[mistake.label],
        "guess": data.classes[mistake.guess],
        "confidence": mistake.confidence,
        "png": base64.b64encode(file.getvalue()).decode(),
    }


def _same_classes(trained: Data, other: Data) -> Data:
    other.load()
    if list(other.classes) != list(trained.classes):
        raise InputError(
            f"{other.title} has other classes than the run's {trained.title}: "
            f"{_few(other.classes)} instead of {_few(trained.classes)}."
        )
    if other.shape != trained.shape:
        raise InputError(
            f"{other.title} has images of {'x'.join(map(str, other.shape))}, but the run was trained on "
            f"{'x'.join(map(str, trained.shape))}."
        )
    return other


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
