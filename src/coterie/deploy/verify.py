"""An exported file in its own runtime beside the trained network: the same logits, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..methods.task import task_named
from ..models.metadata import Metadata
from .exported import ExportedNetwork, open_exported, torch_runner
from .formats import Writer

LOGIT_TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the batch's largest (at least 1): float32 sums in another order."""


def write_verified(
    write: Writer,
    network: nn.Module,
    file: Path,
    metadata: Metadata,
    images: list[Tensor],
    open_file: Callable[[Path], ExportedNetwork] | None = None,
) -> None:
    """Write a file and compare it; then write the figures into it, and compare what was finally written.

    `open_file` opens it in the runtime that will load it; by default `open_exported` does.
    """
    open_file = open_file or partial(open_exported, model=metadata.model["name"], trust=True)
    for _ in range(2):
        write(file, metadata)
        exported = open_file(file)
        figures = metadata.verified = compare_outputs(network, exported, images)
        if not figures["relative_difference"] <= LOGIT_TOLERANCE:  # NaN is a mismatch too
            raise InputError(
                f"The exported file does not compute the same: a logit differs by {figures['max_difference']:.3g} "
                f"({figures['relative_difference']:.1g} of the largest, allowed: {LOGIT_TOLERANCE:.0g}), "
                f"labels agree on {100 * figures['label_agreement']:.2f} %; nothing was replaced."
            )


def compare_outputs(
    network: nn.Module, exported: ExportedNetwork, images: list[Tensor], edges: bool = True
) -> dict[str, Any]:
    """Compare a file in its own runtime with the network, on test images and on edge inputs."""
    reference, task = torch_runner(network), task_named(exported.metadata.task)
    differences, relative = [], []
    agree, count = 0.0, 0
    edge_batches = edge_inputs(images[0]) if edges else []
    for i, batch in enumerate([*images, *edge_batches]):
        expected, expected_peers = reference(batch)
        if i < len(images) and not expected.isfinite().all():
            raise InputError(
                "The trained network itself gives no numbers (NaN or infinite); nothing was replaced."
            )
        logits, peers = exported.run(batch)
        if logits.shape != expected.shape or (peers is None) != (expected_peers is None):
            raise InputError("The exported file gives outputs of another shape; nothing was replaced.")
        for output, target in ((logits, expected), (peers, expected_peers)):
            if output is not None and target is not None:
                differences.append((output - target).abs().max())
                relative.append(differences[-1] / target.abs().max().clamp(min=1.0))
        if i < len(images):
            same = task.decisions(logits) == task.decisions(expected)
            agree += float(same.sum()) if task.one_label else float(same.double().mean(1).sum())
            count += len(batch)
    return {
        "max_difference": torch.stack(differences).max().item(),  # NaN if any is
        "relative_difference": torch.stack(relative).max().item(),
        "tolerance": LOGIT_TOLERANCE,
        "label_agreement": agree / count,
        "images": count,
        "edge_inputs": len(edge_batches),
        "runtime": exported.runtime,
    }


def edge_inputs(batch: Tensor) -> list[Tensor]:
    """Return inputs unlike any photograph: zeros, extremes, noise; alone, and three together."""
    one = torch.zeros_like(batch[:1])
    noise = torch.randn(3, *batch.shape[1:], generator=torch.Generator().manual_seed(0))
    low, high = batch.min(), batch.max()
    return [one, one + low, one + high, batch[:1], noise[:1] * 10, torch.cat([one + low, one, one + high]), noise]


def resize_images(images: Tensor, metadata: Metadata) -> Tensor:
    """Return a batch at the size that the exported network takes."""
    size = tuple(metadata.input["size"])
    if tuple(images.shape[2:]) != size:
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    return images.contiguous()
