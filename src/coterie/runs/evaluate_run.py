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
from ..errors import Failure, InputError, reason, warn
from ..files import write
from ..methods import Method
from ..metrics.evaluate import calibrations, evaluate, fit_thresholds
from ..metrics.mistakes import Mistake, Mistakes
from ..peers.cost import interleaved, macs, parameters, plain_training_macs, training_macs
from ..peers.net import standalone
from ..peers.trace import evaluating
from .information import data_change
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
        data.task = "auto" if method.task.one_label else "multi_label"
    tested = recipe.data if data is None else _same_classes(recipe.data, data, not method.task.one_label)
    device = recipe.torch_device()
    thresholds = fit_thresholds(method.to(device), recipe.data, device)
    scored = _score(method, tested, "test", device, thresholds)
    changed = data_change(directory, recipe) if data is None else None
    if changed:
        warn(f"{changed}: these scores are of the data as it is now, and evaluation.json stays as it was.")
    elif data is None:
        write_evaluation(directory, recipe, method, epochs, scored if tested.eval_split == "test" else None)
    result, _ = scored
    if calibrated:
        for name, calibration in calibrations(method, recipe.data, device, tested).items():
            result["predictors"][name]["calibrated"] = calibration
    selected = {} if method.selected is None else {"selected": method.selected}
    return {"run": str(directory), "data": tested.title, "epochs": epochs, **selected, **result}


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
        used = {method.deployed: standalone(networks[method.deployed])}  # as it is deployed, without hooks
        used |= {name: networks[name] for name in ("ensemble",) if name in networks and name not in used}
        plain = standalone(method.net.peers[0])
        latencies = _latencies({"plain": plain, **used}, data.shape, device)
        for name in used:
            scores["predictors"][name]["latency_ms"] = latencies[name]
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
            "plain_training_macs": plain_training_macs(plain, data.shape),
            "plain_latency_ms": latencies["plain"],
        }
        write(file, json.dumps(content) + "\n")
    except Failure as error:
        warn(str(error))
    except Exception as error:  # the run is complete without it
        warn(f"{file} could not be written ({type(error).__name__}: {reason(error)}).")


def _score(
    method: Method,
    data: Data,
    split: SplitName,
    device: torch.device,
    thresholds: dict[str, list[float]] | None = None,
) -> tuple[dict[str, Any], Mistakes]:
    """Return the scores of every predictor on a split, and the deployed one's most confident mistakes."""
    mistakes = Mistakes(MISTAKES, method.task)
    batches = data.test_batches(1000, split=split, device=device)
    result = evaluate(method, batches, device, classes=data.classes, mistakes=mistakes, thresholds=thresholds)
    for name, network in method.predictors().items():
        result["predictors"][name] |= {"parameters": parameters(network), "macs": macs(network, data.shape)}
    return result, mistakes


def _latencies(networks: dict[str, nn.Module], shape: tuple[int, ...], device: torch.device) -> dict[str, float]:
    """Return the median latency of each network for one image, in milliseconds, measured in turns."""
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
        "label": data.label_text(mistake.label),
        "guess": f"not {data.classes[mistake.guess]}" if mistake.missed else data.classes[mistake.guess],
        "confidence": mistake.confidence,
        "png": base64.b64encode(file.getvalue()).decode(),
    }


def _same_classes(trained: Data, other: Data, several: bool) -> Data:
    other.load()
    if other.several_labels and not several:
        raise InputError(f"{other.title} has several labels an image, but the run was trained for one.")
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
