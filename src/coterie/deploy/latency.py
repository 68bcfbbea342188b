"""Plain network, student and ensemble of a run side by side: size, work and speed in two runtimes."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..config.recipe import Recipe
from ..errors import Failure, warn
from ..files import write
from ..methods import Method
from ..methods.base import Ensemble
from ..models.metadata import Metadata, encode_weights
from ..peers.cost import interleaved, macs, parameters
from ..runs.rebuild import restored
from .exported import open_session
from .formats import EnsembleWithPeers, file_weights, make_writer

BATCHES = {"latency_ms": 1, "images_per_second": 64}
EMPTY = Metadata("", {}, {}, [])


def measure_run_costs(directory: Path) -> dict[str, dict[str, Any]]:
    """Measure the costs of a trained run, and write them to its costs.json."""
    recipe, method, _ = restored(directory)
    costs = measure_costs(recipe, method)
    try:
        write(directory / "costs.json", json.dumps(costs, indent=2) + "\n")
    except Failure as error:  # someone else's run, perhaps: they are shown all the same
        warn(str(error))
    return costs


def measure_costs(recipe: Recipe, method: Method, seconds: float = 1.0) -> dict[str, dict[str, Any]]:
    """Measure `plain`, `student` and `ensemble`: parameters, macs, bytes of the safetensors file, and speed.

    Speed is the latency at batch 1 and the throughput at batch 64, in torch and, where it is installed, in onnx.
    """
    shape, classes = recipe.data.shape, len(recipe.data.classes)
    plain = models.factory(recipe.model, classes, shape[0], recipe.model_options, shape[1:], fresh=False)
    networks: dict[str, nn.Module] = {"plain": plain().eval(), "student": method.deploy().cpu()}
    ensemble = method.predictors().get("ensemble")
    if isinstance(ensemble, Ensemble):
        networks["ensemble"] = EnsembleWithPeers(ensemble).cpu().eval()
    costs: dict[str, dict[str, Any]] = {}
    for name, network in networks.items():
        file = encode_weights(file_weights(network), EMPTY)
        costs[name] = {"parameters": parameters(network), "macs": macs(network, shape), "bytes": len(file)}
    runtimes: dict[str, dict[str, Callable[[Tensor], object]]] = {"torch": dict(networks)}
    if all(importlib.util.find_spec(package) for package in ("onnx", "onnxscript", "onnxruntime")):
        runtimes["onnx"] = {name: _onnx_runner(network, shape) for name, network in networks.items()}
    for runtime, runners in runtimes.items():
        for figure, size in BATCHES.items():
            images = torch.randn(size, *shape)
            with torch.no_grad():
                times = interleaved({name: partial(run, images) for name, run in runners.items()}, seconds)
            for name, time in times.items():
                value = 1000 * time if figure == "latency_ms" else size / time
                costs[name].setdefault(runtime, {})[figure] = value
    return costs


def _onnx_runner(network: nn.Module, shape: tuple[int, ...]) -> Callable[[Tensor], object]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        make_writer(network, torch.randn(2, *shape), "onnx")(file, EMPTY)
        # With spinning, one network's threads would take the cores while the next one is timed.
        session = open_session(file.read_bytes(), spin=False)
    return lambda images: session.run(None, {"images": images.numpy()})
