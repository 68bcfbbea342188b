"""A run becomes a file to ship, and the file is shown to compute the same before it replaces anything."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config.recipe import Recipe
from ..data import Data
from ..data.rng import order
from ..errors import InputError, printable, reason, unknown, warn
from ..files import atomic_path, write
from ..methods import Method
from ..methods.base import Ensemble
from ..metrics.evaluate import Scores, calibrations
from ..peers.net import standalone
from ..runs.directory import Run
from ..runs.rebuild import restored
from .card import model_card
from .formats import Format, Loaded, WithPeers, load, need_onnx, writer
from .metadata import Metadata, from_json
from .quantize import IMAGES, quantise, set_metadata

TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the batch's largest (at least 1): float32 sums in another order."""

MOST_LOST = 5.0
"""Percent points of error that int8 may cost before the export is refused as broken."""

VERIFIED_ON = 256
"""Test images that a file is compared on."""


@dataclass
class Exported:
    """What an export wrote."""

    file: Path
    card: Path
    metadata: Metadata


def export(
    directory: Path,
    kind: Format = "safetensors",
    predictor: str | None = None,
    output: Path | None = None,
    int8: bool = False,
    calibrated: bool = False,
    size: int | None = None,
) -> Exported:
    """Write a predictor of a run as a file, verified in the runtime that will load it."""
    if calibrated and size is not None:
        raise InputError("A temperature is fit on images of the run's own size: leave out --calibrate or --size.")
    if int8 and kind != "onnx":
        raise InputError("--quantize int8 is for ONNX: add --format onnx.")
    if kind == "onnx":
        need_onnx("onnx", "onnxscript", "onnxruntime")
    recipe, method, epochs = restored(directory)
    method.cpu().eval()
    networks = method.predictors()
    name = predictor or method.deployed
    if name not in networks:
        raise unknown("predictor", name, networks)
    found = networks[name]
    network = WithPeers(found).eval() if isinstance(found, Ensemble) else standalone(found)
    metadata = _metadata(directory, recipe, method, name, epochs, size)
    if calibrated:
        fitted = calibrations(method, recipe.data, "cpu")[name]
        metadata.temperature = fitted["temperature"]
        metadata.scores["calibrated"] = fitted
    file = output or directory / f"{name}{'-int8' if int8 else ''}.{kind}"
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(f"{file} cannot be written: name a file in a directory that exists.")
    images = list(_inputs(recipe.data, metadata))
    with _refusing(metadata):
        put = writer(network, images[0][:1].repeat(2, 1, 1, 1), kind)  # of one alone, the batch would be fixed
    with atomic_path(file) as part:
        if int8:
            _quantised(put, network, part, recipe, metadata, images)
        else:
            _verified(put, network, part, metadata, images)
    card = file.with_name(file.name + ".md")
    write(card, model_card(metadata, file.name))
    return Exported(file, card, metadata)


def _verified(
    put: Callable[[Path, Metadata], None],
    network: nn.Module,
    part: Path,
    metadata: Metadata,
    images: list[Tensor],
) -> None:
    """Write and compare; then write the figures in, and compare what was finally written."""
    for _ in range(2):
        put(part, metadata)
        found = metadata.verified = compare(network, load(part, metadata.model["name"]), images)
        if not found["relative_difference"] <= TOLERANCE:  # NaN is a mismatch too
            raise InputError(
                f"The exported file does not compute the same: a logit differs by {found['max_difference']:.3g} "
                f"({found['relative_difference']:.1g} of the largest, allowed: {TOLERANCE:.0g}), "
                f"labels agree on {100 * found['label_agreement']:.2f} %; "
                "nothing was replaced."
            )


def _quantised(
    put: Callable[[Path, Metadata], None],
    network: nn.Module,
    part: Path,
    recipe: Recipe,
    metadata: Metadata,
    images: list[Tensor],
) -> None:
    """The verified float32 file becomes an int8 one, whose loss of accuracy is measured on the test set."""
    wide = part.with_name(part.name + ".float32")
    try:
        _verified(put, network, wide, metadata, images)
        with _refusing(metadata):
            quantise(wide, part, _calibration_images(recipe, metadata))
        set_metadata(part, metadata)
        before = _scores(load(wide), recipe.data, metadata)
        after = _scores(load(part), recipe.data, metadata)
    finally:
        wide.unlink(missing_ok=True)
    metadata.quantized = {
        "calibration_images": min(IMAGES, recipe.data.train_size),
        "test_images": after.count,
        "error_float32": before.result()["error"],
        "error_int8": after.result()["error"],
    }
    metadata.scores |= {"split": "test", **after.result()}  # of this file, not of what it was made from
    # int8 has learnt the ranges of real images: inputs far outside of them are cut off.
    metadata.verified = compare(network, load(part), images, edges=False)
    was, now = metadata.quantized["error_float32"], metadata.quantized["error_int8"]
    if now - was > MOST_LOST:
        raise InputError(
            f"int8 raises the error from {was:.2f} to {now:.2f} %: this network does not survive it, "
            "export it without --quantize; nothing was replaced."
        )
    set_metadata(part, metadata)
    if load(part).metadata != from_json(metadata.to_json(), part):
        raise InputError("The quantised file does not hold its metadata; nothing was replaced.")


def compare(network: nn.Module, loaded: Loaded, images: list[Tensor], edges: bool = True) -> dict[str, Any]:
    """The file in its own runtime against the network, on test images and on edge inputs."""
    differences, relative = [], []
    agree = count = 0
    unusual = edge_inputs(images[0]) if edges else []
    for i, batch in enumerate([*images, *unusual]):
        with torch.no_grad():
            expected = network(batch)
        wanted, wanted_peers = expected if isinstance(expected, tuple) else (expected, None)
        if i < len(images) and not wanted.isfinite().all():
            raise InputError(
                "The trained network itself gives no numbers (NaN or infinite); nothing was replaced."
            )
        got, got_peers = loaded.run(batch)
        if got.shape != wanted.shape or (got_peers is None) != (wanted_peers is None):
            raise InputError("The exported file gives outputs of another shape; nothing was replaced.")
        for a, b in ((got, wanted), (got_peers, wanted_peers)):
            if a is not None and b is not None:
                differences.append((a - b).abs().max())
                relative.append(differences[-1] / b.abs().max().clamp(min=1.0))
        if i < len(images):
            agree += int((got.argmax(1) == wanted.argmax(1)).sum())
            count += len(batch)
    return {
        "max_difference": torch.stack(differences).max().item(),  # NaN if any is
        "relative_difference": torch.stack(relative).max().item(),
        "tolerance": TOLERANCE,
        "label_agreement": agree / count,
        "images": count,
        "edge_inputs": len(unusual),
        "runtime": loaded.runtime,
    }


def edge_inputs(batch: Tensor) -> list[Tensor]:
    """Inputs that no photograph is: nothing, extremes, noise; alone, and three together."""
    one = torch.zeros_like(batch[:1])
    noise = torch.randn(3, *batch.shape[1:], generator=torch.Generator().manual_seed(0))
    low, high = batch.min(), batch.max()
    return [one, one + low, one + high, batch[:1], noise[:1] * 10, torch.cat([one + low, one, one + high]), noise]


def _inputs(data: Data, metadata: Metadata) -> Iterator[Tensor]:
    """Test images in batches of 64, at the size of the export."""
    batches = data.test_batches(64)
    for images, _ in islice(batches, VERIFIED_ON // 64):
        yield _resized(images, metadata)


def _resized(images: Tensor, metadata: Metadata) -> Tensor:
    wanted = tuple(metadata.input["size"])
    if tuple(images.shape[2:]) != wanted:
        images = F.interpolate(images, wanted, mode="bilinear", antialias=True)
    return images.contiguous()


def _calibration_images(recipe: Recipe, metadata: Metadata) -> Iterator[Tensor]:
    """Training images: the test set stays unseen until it measures."""
    chosen = order(recipe.seed, 0, recipe.data.train_size)[:IMAGES]
    for start in range(0, len(chosen), 64):
        views, _ = recipe.data.views(chosen[start : start + 64], 1, recipe.seed, 0)
        yield _resized(views[0], metadata)


def _scores(loaded: Loaded, data: Data, metadata: Metadata) -> Scores:
    scores = Scores()
    for images, labels in data.test_batches(64):
        scores.add(loaded.run(_resized(images, metadata))[0], labels)
    return scores


def _metadata(
    directory: Path, recipe: Recipe, method: Method, name: str, epochs: int, size: int | None
) -> Metadata:
    run, data = Run(directory), recipe.data
    preprocessing = data.preprocessing()
    if size is not None:
        if size < 1:
            raise InputError(f"--size must be at least 1 pixel, not {size}.")
        if preprocessing["resize"] is not None:
            preprocessing["resize"] = max(size, round(preprocessing["resize"] * size / min(preprocessing["size"])))
        preprocessing["size"] = [size, size]
    scores: dict[str, Any] = {}
    if epochs < recipe.epochs:  # the last figures there are may not be those of the weights there are
        warn(f"{directory} is not finished: {epochs} of {recipe.epochs} epochs.")
    elif size is None:
        last = run.metrics()[-1]
        scores = {"split": last["split"], **last["predictors"].get(name, {})}
    environment = json.loads((directory / "environment.json").read_text())
    kept = ("date", "commit", "coterie", "torch", "python", "processor")
    provenance = {
        "method": recipe.method_class.__name__,
        "data": data.title,
        "epochs": epochs,
        "seed": recipe.seed,
        **{key: environment.get(key) for key in kept},
    }
    ensemble = None
    if name.endswith("ensemble"):
        split = method.net.split
        ensemble = {
            "method": recipe.method_class.__name__,
            "options": recipe.config["method"].get("init_args", {}),
            "peers": method.net.size,
            "cut": split.cut if split else None,
        }
    # Peers may be of different architectures: what the file holds is named, one of them or all.
    names = recipe.models
    if len(names) > 1 and (number := re.fullmatch(r"(?:peer|mean)(\d+)", name)):
        names = [names[int(number[1]) - 1]]
    model = {"name": ",".join(names), "options": recipe.model_options}
    classes = [printable(label.strip()) for label in data.classes]  # they may be lines of a file, or folders
    return Metadata(name, model, preprocessing, classes, ensemble, scores=scores, provenance=provenance)


@contextlib.contextmanager
def _refusing(metadata: Metadata) -> Iterator[None]:
    """What the exporters raise, as one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # tracing runs the user's own forward method: it may raise anything
        size = "x".join(map(str, metadata.shape))
        what = f"{metadata.model['name']} cannot be exported for images of {size}"
        raise InputError(f"{what}: {reason(error)}") from None
