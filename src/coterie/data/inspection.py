"""What is in a data set: counts, sizes, bad files, duplicates between splits, and a sheet of its views."""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from ..errors import InputError
from .base import Data
from .batch import SplitName
from .images import Unreadable, to_image
from .mix import Mix
from .targets import class_counts

CELL, GAP, LABEL = 96, 4, 16
"""Pixels of an image on the contact sheet, between two, and of the text above."""


def inspect_data(data: Data) -> dict[str, Any]:
    """Read every image of a loaded set once and return what is in it."""
    bad = dict(data.bad_files)
    copies: dict[str, dict[SplitName, list[str]]] = defaultdict(lambda: defaultdict(list))
    sizes: list[tuple[int, int]] = []
    splits = {split: labels for split, labels in data.labels.items() if len(labels)}
    for split, labels in splits.items():
        for image in range(len(labels)):
            name = data.name(split, image)
            try:
                original = data.original(image, split)
            except Unreadable as error:
                bad[name] = str(error)
                continue
            sizes.append(original.size)
            content = f"{original.mode}{original.size}".encode() + original.tobytes()
            copies[hashlib.sha1(content, usedforsecurity=False).hexdigest()][split].append(name)
    counts = {
        split: dict(zip(data.classes, class_counts(labels, len(data.classes)).tolist(), strict=True))
        for split, labels in splits.items()
    }
    return {
        "classes": len(data.classes),
        "images": {split: len(labels) for split, labels in splits.items()},
        "view": list(data.shape),
        "sizes": {
            "smallest": np.min(sizes, axis=0).tolist(),
            "median": np.median(sizes, axis=0).astype(int).tolist(),
            "largest": np.max(sizes, axis=0).tolist(),
        }
        if sizes
        else {},
        "per_class": counts,
        "bad": bad,
        "duplicates": {
            "between_splits": [dict(names) for names in copies.values() if len(names) > 1],
            "within_a_split": sum(len(names) - 1 for by_split in copies.values() for names in by_split.values()),
        },
    }


def contact_sheet(
    data: Data, views: int = 3, images: int = 8, seed: int = 0, epoch: int = 0, mix: Mix | None = None
) -> Image.Image:
    """Draw training images, spread over the set, each in a row: the original, then its views in training.

    With `mix`, the views follow once more as a step that mixes makes them.
    """
    rows: list[tuple[str, list[Image.Image | None]]] = []
    batches: list[tuple[list[Tensor], Tensor]] = []
    for image in np.unique(np.linspace(0, data.train_size - 1, images).astype(np.int64)).tolist():
        original = None
        try:
            with suppress(NotImplementedError):  # a set of somebody's own need not have originals
                original = data.original(image)
            batch = data.views(np.array([image]), views, seed, epoch)
        except (Unreadable, InputError):  # it cannot be read: training will say so
            continue
        if mix is not None:
            batches.append(batch)
        pictures = [original, *(to_picture(view[0], data) for view in batch[0])]
        rows.append((data.label_text(batch[1][0]), [picture and _fitted(picture) for picture in pictures]))
    if mix is not None and len(rows) > 1:
        mixed_views, targets = _mix_batches(batches, len(data.classes), mix, seed)
        for i, (label, pictures) in enumerate(rows):
            shares = sorted(((p, c) for c, p in enumerate(targets[i].tolist()) if p), reverse=True)
            text = ", ".join(f"{100 * p:.0f} % {data.classes[c]}" for p, c in shares)
            mixed = (_fitted(to_picture(view[i], data)) for view in mixed_views)
            rows[i] = f"{label}; mixed: {text}", [*pictures, *mixed]
    columns = max((len(pictures) for _, pictures in rows), default=0)
    size = (columns * (CELL + GAP) + GAP, len(rows) * (CELL + LABEL + GAP) + GAP)
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for r, (label, pictures) in enumerate(rows):
        y = GAP + r * (CELL + LABEL + GAP)
        # What Pillow's built-in font can draw.
        pen.text((GAP, y), label.encode("latin-1", "replace").decode("latin-1")[:60], fill="black")
        for c, picture in enumerate(pictures):
            if picture is not None:
                sheet.paste(picture, (GAP + c * (CELL + GAP), y + LABEL))
    return sheet


def _mix_batches(
    batches: list[tuple[list[Tensor], Tensor]], classes: int, mix: Mix, seed: int
) -> tuple[list[Tensor], Tensor]:
    """Mix the views of all batches as one batch, whatever the probability of mixing."""
    mix = copy.copy(mix)
    mix.probability = mix.until = 1.0
    views = [torch.cat(views) for views in zip(*(views for views, _ in batches), strict=True)]
    targets = torch.cat([labels for _, labels in batches])
    return mix(views, targets, classes, seed=(seed,), several=targets.dim() == 2)


def to_picture(view: Tensor, data: Data) -> Image.Image:
    """Undo the normalisation of a view, or stretch it to the full range where that is unknown."""
    values = view.numpy()
    if len(data.mean) == len(values):
        values = values * np.reshape(data.std, (-1, 1, 1)) + np.reshape(data.mean, (-1, 1, 1))
    else:
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-6)
    return to_image((values * 255).round().clip(0, 255).astype(np.uint8))


def _fitted(picture: Image.Image) -> Image.Image:
    scale = CELL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.convert("RGB").resize(
        size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    )
