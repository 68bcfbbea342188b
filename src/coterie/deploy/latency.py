"""Plain network, student and ensemble of a run side by side: size, work and speed in two runtimes."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..config.recipe import Recipe
from ..files import write
from ..methods import Method
from ..methods.base import Ensemble
from ..peers.cost import interleaved, macs, parameters
from ..runs.rebuild import restored
from .formats import WithPeers, session_options, writer
from .metadata import Metadata

BATCHES = {"latency_ms": 1, "images_per_second": 64}


def of_run(directory: Path) -> dict[str, dict[str, Any]]:
    """The costs of a trained run, also written to its costs.json."""
    recipe, method, _ = restored(directory)
    found = side_by_side(recipe, method)
    write(directory / "costs.json", json.dumps(found, indent=2) + "\n")
    return found


def side_by_side(recipe: Recipe, method: Method, seconds: float = 1.0) -> dict[str, dict[str, Any]]:
    """For each of `plain`, `student` and `ensemble`: parameters, macs, bytes of its safetensors file, and per
    runtime ({torch, onnx}; onnx where it is installed) the latency at batch 1 and the throughput at batch 64."""
    shape, classes = recipe.data.shape, len(recipe.data.classes)
    plain = models.factory(recipe.model, classes, shape[0], recipe.model_options, shape[1:], fresh=False)
    networks: dict[str, nn.Module] = {
        "plain": plain().eval(),
        "student": method.deploy().cpu(),
    }
    ensemble = method.predictors().get("ensemble")
    if isinstance(ensemble, Ensemble):
        networks["ensemble"] = WithPeers(ensemble).cpu().eval()
    found: dict[str, dict[str, Any]] = {
        name: {"parameters": parameters(network), "macs": macs(network, shape)}
        for name, network in networks.items()
    }
    runners: dict[str, dict[str, Callable[[Tensor], object]]] = {"torch": dict(networks)}
    with tempfile.TemporaryDirectory() as folder:
        for name, network in networks.items():
            file = Path(folder) / name
            writer(network, torch.randn(2, *shape), "safetensors")(file, _NOTHING)
            found[name]["bytes"] = file.stat().st_size
        if all(importlib.util.find_spec(package) for package in ("onnx", "onnxscript", "onnxruntime")):
            runners["onnx"] = {name: _onnx(network, shape, Path(folder)) for name, network in networks.items()}
    for runtime, by_name in runners.items():
        for figure, size in BATCHES.items():
            images = torch.randn(size, *shape)
            with torch.no_grad():
                times = interleaved({name: _call(run, images) for name, run in by_name.items()}, seconds)
            for name, taken in times.items():
                value = 1000 * taken if figure == "latency_ms" else size / taken
                found[name].setdefault(runtime, {})[figure] = value
    return found


_NOTHING = Metadata("", {}, {}, [])


def _onnx(network: nn.Module, shape: tuple[int, ...], folder: Path) -> Callable[[Tensor], object]:
    import onnxruntime

    file = folder / "network.onnx"
    writer(network, torch.randn(2, *shape), "onnx")(file, _NOTHING)
    options = session_options()
    # Else the threads of one network still spin, and take the cores, while the next one is timed.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(file.read_bytes(), options, ["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images.numpy()})


def _call(run: Callable[[Tensor], object], images: Tensor) -> Callable[[], object]:
    return lambda: run(images)
