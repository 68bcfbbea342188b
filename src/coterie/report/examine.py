"""What only the network itself can tell: costs, calibration, its worst mistakes, and what its peers saw."""

from __future__ import annotations

import base64
import functools
import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from ..config.options import from_file
from ..config.recipe import Recipe
from ..data import Data
from ..methods import Method
from ..metrics.evaluate import Scores
from ..peers.cost import interleaved, macs, parameters, plain_training_macs, training_macs
from ..peers.net import standalone
from ..peers.trace import evaluating
from ..runs.directory import Run
from ..runs.reader import Result
from .content import Picture

MISTAKES, SHOWN_IMAGES, LARGEST = 12, 3, 96
"""How many pictures a page shows of each kind, and their longest side in pixels."""


@dataclass
class Network:
    """What a predictor costs where it is used; latency is the median for one image on this machine."""

    parameters: int
    macs: int
    latency_ms: float


@dataclass
class Examination:
    """What was found; empty parts could not be, and `missing` says why."""

    missing: list[str] = field(default_factory=list)
    step_macs: float | None = None
    train_size: int = 0
    networks: dict[str, Network] = field(default_factory=dict)
    plain_macs: float | None = None
    """Of a training step of its network alone, as `step_macs` is of the method's."""
    tested: int = 0
    error: float | None = None
    bins: list[tuple[float, float, int]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    """As `Scores.per_class` has them, those that are missed most first."""
    mistakes: list[Picture] = field(default_factory=list)
    views: list[list[Picture]] = field(default_factory=list)


def examine(result: Result, weights: bool) -> Examination:
    """Build a run's networks again for their costs and, with `weights`, test what it trained."""
    checkpoint = result.path / "checkpoint.pt"
    if not result.config:
        return Examination(missing=[f"{result.path}: without config.yaml its networks cannot be built."])
    if weights and not checkpoint.is_file():
        found = _examine(result.path, None)
        missing = f"{result.path}: there is no checkpoint.pt, so nothing that needs the weights is shown."
        return replace(found, missing=[*found.missing, missing])
    return _examine(result.path, checkpoint.stat().st_mtime_ns if weights else None)


_read: dict[str, Data] = {}
"""The data last read, by its configuration and the seed of its images: most runs of a report have the same."""


@functools.lru_cache(maxsize=256)
def _examine(path: Path, checkpoint_time: int | None) -> Examination:
    """Kept until the checkpoint is another one, as a page that is written again and again needs it."""
    found = Examination()
    try:
        recipe = from_file(path / "config.yaml")
        # The word `seed` of --data.limit_seed stands for other images in each run.
        spec = json.dumps([recipe.config["data"], recipe.data.subset_seed], sort_keys=True, default=str)
        recipe.data = _read.get(spec, recipe.data)
        method = recipe.build(fresh=False)
        _read.clear()
        _read[spec] = recipe.data
        data, device = recipe.data, recipe.torch_device()
        method.to(device)
        method.prepare()
        found.train_size = data.train_size
        found.step_macs = training_macs(method, data.shape, method.views, len(data.classes))
        found.plain_macs = plain_training_macs(standalone(method.net.peers[0]), data.shape)
        predictors = method.predictors()
        used = {name: predictors[name] for name in (method.deployed, "ensemble") if name in predictors}
        latency = _latencies(used, data.shape, device)
        found.networks = {
            name: Network(parameters(network), macs(network, data.shape), 1000 * latency[name])
            for name, network in used.items()
        }
        if checkpoint_time is not None:
            Run(path).restore(method)
            _test(found, method, data, device)
            found.views = _views(recipe, method)
    except Exception as error:  # a report is about what is there: moved data or a user's own class must not end it
        found.missing.append(f"{path}: {type(error).__name__}: {error}")
    return found


def _latencies(networks: dict[str, nn.Module], shape: tuple[int, ...], device: torch.device) -> dict[str, float]:
    """The median seconds for one image."""
    image = torch.zeros(1, *shape, device=device)

    def run(network: nn.Module) -> None:
        network(image)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    with evaluating(*networks.values()):
        return interleaved({name: functools.partial(run, network) for name, network in networks.items()}, 0.05)


def _test(found: Examination, method: Method, data: Data, device: torch.device) -> None:
    """The deployed network on what training reported on: calibration, classes, its most confident mistakes.

    A run that held images out is looked at on these: a report is read while decisions are made, and the test
    images are not for that.
    """
    network, scores = method.predictors()[method.deployed], Scores(per_class=True)
    worst: list[tuple[float, int, int, Tensor]] = []
    with evaluating(network):
        for images, labels in data.test_batches(500, split=data.eval_split):
            logits = network(images.to(device)).float().cpu()
            scores.add(logits, labels)
            confidence, guess = logits.softmax(1).max(1)
            wrong = (guess != labels).nonzero()[:, 0]
            wrong = wrong[confidence[wrong].argsort(descending=True)[:MISTAKES]]
            worst += [(float(confidence[i]), int(labels[i]), int(guess[i]), images[i]) for i in wrong]
            worst = sorted(worst, key=lambda mistake: -mistake[0])[:MISTAKES]
    assert scores.bins is not None
    found.tested, found.error = scores.count, scores.result()["error"]
    found.bins = [(c / n, r / n, int(n)) if n else (0.0, 0.0, 0) for c, r, n in scores.bins.T.tolist()]
    classes = [row for row in scores.per_class(data.classes) if row["images"]]
    found.classes = sorted(classes, key=lambda row: -row["error"])
    found.mistakes = [
        Picture(
            picture(image, data), f"{data.classes[label]}, taken for {data.classes[guess]} ({100 * sure:.1f} %)"
        )
        for sure, label, guess, image in worst
    ]


def _views(recipe: Recipe, method: Method) -> list[list[Picture]]:
    """Some training images as each peer was shown them in the first epoch."""
    data = recipe.data
    chosen = np.unique(np.linspace(0, data.train_size - 1, SHOWN_IMAGES).astype(np.int64))
    views, labels = data.views(chosen, method.views, recipe.seed, 0)
    return [
        [
            Picture(picture(view[i], data), f"{data.classes[int(label)]}, view {j}")
            for j, view in enumerate(views, 1)
        ]
        for i, label in enumerate(labels)
    ]


def picture(image: Tensor, data: Data) -> str:
    """A normalised image as people see it; where the data does not say how it was normalised, stretched."""
    pixels = image.detach().cpu().float()
    mean, std = getattr(data, "mean", ()), getattr(data, "std", ())
    if len(mean) == len(pixels):
        pixels = pixels * torch.tensor(std).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1)
    else:
        pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp_min(1e-6)
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    shown = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    shown.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    shown.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
