"""A run becomes a file to ship, verified before it replaces anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..config.recipe import Recipe
from ..data.pictures import LARGEST_SIDE
from ..errors import InputError, unknown, warn
from ..files import atomic_path, read_json, write
from ..methods import Method
from ..methods.base import Ensemble
from ..metrics.evaluate import calibrations
from ..models.metadata import Metadata
from ..peers.net import standalone
from ..runs.description import describe_predictor
from ..runs.directory import RunDirectory
from ..runs.own_files import check_output
from ..runs.reader import read_run
from ..runs.rebuild import restored
from ..runs.selection import deployed_record
from .card import SPLITS, write_card
from .exported import open_executorch, open_state_dict
from .formats import EnsembleWithPeers, ExportFormat, choose_format, exporter_errors, make_writer, require_onnx
from .quantize import write_int8
from .timm_folder import WEIGHTS_FILE, write_timm_folder
from .verify import resize_images, write_verified

VERIFIED_BATCHES = 4
"""Batches of 64 test images that a file is compared on."""


@dataclass
class ExportResult:
    """The files of an export, and what they say about themselves."""

    file: Path
    card: Path
    metadata: Metadata


def export_run(
    directory: Path,
    format: ExportFormat | None = None,
    predictor: str | None = None,
    output: Path | None = None,
    int8: bool = False,
    calibrate: bool = False,
    size: int | None = None,
    objects: Mapping[str, Any] = {},
) -> ExportResult:
    """Write a predictor of a run as a file, verified in the runtime that will load it.

    Args:
        directory: of the run.
        format: safetensors, onnx, pt2, pth, timm or executorch; by default what the ending of `output` means.
        predictor: mean1, peer2, ensemble, ...; by default the one to deploy.
        output: the file to write, for timm the folder; by default DIRECTORY/PREDICTOR.FORMAT.
        int8: quantise weights and activations of an ONNX file.
        calibrate: fit a temperature on the run's held-out images and store it.
        size: side of the images, if it differs from the training's; the network must accept it.
        objects: options of the run that were Python objects.
    """
    if calibrate and size is not None:
        raise InputError("A temperature is fit on images of the run's own size: leave out `calibrate` or `size`.")
    format = choose_format(output, format)
    if output is not None:
        check_output(output)
    if int8 and format != "onnx":
        raise InputError("`quantize` is for ONNX: choose onnx as `format`.")
    if format == "onnx":
        require_onnx("onnx", "onnxscript", "onnxruntime")
    recipe, method, epochs = restored(directory, objects)
    method.cpu().eval()
    predictors = method.predictors()
    name = predictor or method.deployed
    if name not in predictors:
        raise unknown("predictor", name, predictors)
    module = predictors[name]
    if isinstance(module, Ensemble) and format in ("pth", "timm"):
        raise InputError(f"`format` {format} holds a single network: export {name} as safetensors, onnx or pt2.")
    network = EnsembleWithPeers(module).eval() if isinstance(module, Ensemble) else standalone(module)
    metadata = _describe_export(directory, recipe, method, name, epochs, size)
    if calibrate:
        fit = calibrations(method, recipe.data, "cpu")[name]
        metadata.temperature = t = fit["temperature"]
        if metadata.thresholds is not None:  # the same decisions by calibrated probabilities
            from scipy.special import expit, logit  # takes a moment to import

            metadata.thresholds = [float(expit(logit(p) / t)) for p in metadata.thresholds]
        metadata.scores["calibrated"] = fit
    file = output or directory / f"{name}{'-int8' if int8 else ''}.{'pte' if format == 'executorch' else format}"
    if (file.exists() and file.is_dir() != (format == "timm")) or not file.parent.is_dir():
        kind = "folder" if format == "timm" else "file"
        raise InputError(f"{file} cannot be written: name a {kind} in a directory that exists.")
    batches = islice(recipe.data.test_batches(64), VERIFIED_BATCHES)
    images = [resize_images(batch, metadata) for batch, _ in batches]
    if format == "timm":
        card = write_timm_folder(network, file, metadata, images)
        return ExportResult(file / WEIGHTS_FILE, card, metadata)
    with atomic_path(file) as part:
        _write_file(network, part, format, recipe if int8 else None, metadata, images)
    card = file.with_name(file.name + ".md")
    write(card, write_card(metadata, file.name, format))
    return ExportResult(file, card, metadata)


def _write_file(
    network: nn.Module,
    file: Path,
    format: ExportFormat,
    int8: Recipe | None,
    metadata: Metadata,
    images: list[Tensor],
) -> None:
    """Write a network as one verified file; `int8` is the recipe whose images a quantised one is fit to."""
    with exporter_errors(metadata):
        writer = make_writer(network, images[0][:1].repeat(2, 1, 1, 1), format)  # of one alone, the batch is fixed
    if int8 is not None:
        write_int8(writer, network, file, int8, metadata, images)
        return
    openers = {
        "pth": partial(open_state_dict, metadata=metadata, network=network),
        "executorch": partial(open_executorch, metadata=metadata),
    }
    write_verified(writer, network, file, metadata, images, openers.get(format))


def _describe_export(
    directory: Path, recipe: Recipe, method: Method, name: str, epochs: int, size: int | None
) -> Metadata:
    """Return the predictor's metadata with its scores, its image size and where it was trained."""
    metadata = describe_predictor(recipe, method, name, epochs)
    if size is not None:
        if not isinstance(size, int):
            raise InputError(f"`size` must be a whole number of pixels, not {size!r}.")
        if not 1 <= size <= LARGEST_SIDE:
            raise InputError(f"`size` must be at least 1 pixel and at most {LARGEST_SIDE:,}, not {size:,}.")
        short = metadata.input["resize"]
        if short is not None:
            metadata.input["resize"] = max(size, round(short * size / min(metadata.input["size"])))
        metadata.input["size"] = [size, size]
    run = read_run(directory)
    trained, complete = epochs, epochs == recipe.epochs
    if method.selected is not None:
        trained, complete = run.trained, run.finished and run.deployed_record["epoch"] + 1 == epochs
    if not complete:  # the scores may be of other weights
        warn(f"{directory} is not finished: {trained} of {recipe.epochs} epochs.")
    elif size is None:
        if not run.records:
            raise InputError(
                f"{directory / 'metrics.jsonl'} has no record that can be read: its `coterie train` says how "
                "to go on."
            )
        record = deployed_record(RunDirectory(directory).metrics(), recipe.select)
        if record.get("split") not in SPLITS:
            raise InputError(
                f"{directory / 'metrics.jsonl'} does not say which images its scores are of: its `coterie train` "
                "says how to go on."
            )
        metadata.scores = {"split": record["split"], **record["predictors"].get(name, {})}
    environment = read_json(directory / "environment.json")
    for key in ("date", "commit", "coterie", "torch", "python", "processor"):
        metadata.provenance[key] = environment.get(key)
    return metadata
