"""Evaluate every predictor of a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data import Data
from ..errors import InputError
from ..metrics.evaluate import calibrations, evaluate
from ..peers.cost import macs, parameters
from .rebuild import restored


def evaluate_run(directory: Path, data: Data | None = None, calibrated: bool = False) -> dict[str, Any]:
    """Every predictor of a trained run on its test set, with what each one costs.

    `data` is another set with the same classes to test on; `calibrated` adds each predictor's `calibrations`.
    """
    recipe, method, epochs = restored(directory)
    if data is not None:
        data.resolve_seed(recipe.seed)
    tested = recipe.data if data is None else _same_classes(recipe.data, data)
    device = recipe.torch_device()
    result = evaluate(method.to(device), tested.test_batches(1000, device=device), device, classes=tested.classes)
    for name, network in method.predictors().items():
        costs = {"parameters": parameters(network), "macs": macs(network, recipe.data.shape)}
        result["predictors"][name] |= costs
    if calibrated:
        for name, found in calibrations(method, recipe.data, device, tested).items():
            result["predictors"][name]["calibrated"] = found
    return {"run": str(directory), "data": tested.title, "epochs": epochs, **result}


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
