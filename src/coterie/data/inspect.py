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
from .base import Data, Split
from .images import Unreadable
from .mix import Mix

CELL = 96
"""Pixels of an image on the contact sheet."""


def inspect(data: Data) -> dict[str, Any]:
    """Read every image of a loaded set once and tell what was found."""
    bad: dict[str, str] = dict(getattr(data, "bad", {}))
    seen: dict[str, dict[Split, list[str]]] = defaultdict(lambda: defaultdict(list))
    sizes: list[tuple[int, int]] = []
    splits = {split: labels for split, labels in data.labels.items() if len(labels)}
    for split, labels in splits.items():
        for image in range(len(labels)):
            name = _name(data, split, image)
            try:
                original = data.original(image, split)
            except Unreadable as error:
                bad[name] = str(error)
                continue
            sizes.append(original.size)
            content = f"{original.mode}{original.size}".encode() + original.tobytes()
            seen[hashlib.sha1(content, usedforsecurity=False).hexdigest()][split].append(name)
    counts = {
        split: dict(zip(data.classes, np.bincount(labels, minlength=len(data.classes)).tolist(), strict=True))
        for split, labels in splits.items()
    }
    between = [dict(where) for where in seen.values() if len(where) > 1]
    within = sum(len(names) - 1 for where in seen.values() for names in where.values())
    return {
        "classes": len(data.classes),
        "images": {split: len(labels) for split, labels in splits.items()},
        "view": list(data.shape),
        "sizes": _sizes(sizes),
        "per_class": counts,
        "bad": bad,
        "duplicates": {"between_splits": between, "within_a_split": within},
    }


def contact_sheet(
    data: Data, views: int = 3, images: int = 8, seed: int = 0, epoch: int = 0, mix: Mix | None = None
) -> Image.Image:
    """Draw training images, spread over the set, each in a row: the original, then its views in training.

    With `mix`, the views follow once more as a step that mixes makes them.
    """
    chosen = np.unique(np.linspace(0, data.train_size - 1, images).astype(np.int64))
    rows: list[tuple[str, list[Image.Image | None]]] = []
    batches: list[tuple[list[Tensor], Tensor]] = []
    for image in chosen.tolist():
        original = None
        try:
            with suppress(NotImplementedError):  # a set of somebody's own need not have originals
                original = data.original(image)
            batch = data.views(np.array([image]), views, seed, epoch)
        except (Unreadable, InputError):  # it cannot be read: training will say so
            continue
        batches.append(batch)
        rows.append((data.classes[int(batch[1][0])], [original, *(_picture(view[0], data) for view in batch[0])]))
    if mix is not None and len(rows) > 1:
        rows = _with_mixed(rows, batches, data, mix, seed)
    top, gap, columns = 16, 4, max((len(pictures) for _, pictures in rows), default=0)
    sheet = Image.new("RGB", (columns * (CELL + gap) + gap, len(rows) * (CELL + top + gap) + gap), "white")
    pen = ImageDraw.Draw(sheet)
    for r, (label, shown) in enumerate(rows):
        y = gap + r * (CELL + top + gap)
        pen.text((gap, y), _plain(label), fill="black")
        for c, picture in enumerate(shown):
            if picture is not None:
                cell = _fitted(picture.convert("RGB"))
                sheet.paste(cell, (gap + c * (CELL + gap), y + top))
    return sheet


def _with_mixed(
    rows: list[tuple[str, list[Image.Image | None]]],
    batches: list[tuple[list[Tensor], Tensor]],
    data: Data,
    mix: Mix,
    seed: int,
) -> list[tuple[str, list[Image.Image | None]]]:
    """Add the same views mixed, and to each label what the images were mixed to."""
    certain_mix = copy.copy(mix)
    certain_mix.probability = certain_mix.until = 1.0
    batch_views = [torch.cat(views) for views in zip(*(views for views, _ in batches), strict=True)]
    labels = torch.cat([labels for _, labels in batches])
    mixed, targets = certain_mix(batch_views, labels, len(data.classes), seed=(seed,))
    result = []
    for i, (label, pictures) in enumerate(rows):
        shares = sorted(((p, c) for c, p in enumerate(targets[i].tolist()) if p), reverse=True)
        text = ", ".join(f"{100 * p:.0f} % {data.classes[c]}" for p, c in shares)
        result.append((f"{label}; mixed: {text}", [*pictures, *(_picture(view[i], data) for view in mixed)]))
    return result


def _picture(view: Tensor, data: Data) -> Image.Image:
    """A view's pixels with the normalisation undone; stretched to the full range where that is not known."""
    values = view.numpy().transpose(1, 2, 0)
    if len(data.mean) == values.shape[2]:
        values = values * np.array(data.std) + np.array(data.mean)
    else:
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-6)
    pixels = (values * 255).round().clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3])


def _fitted(picture: Image.Image) -> Image.Image:
    scale = CELL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR)


def _plain(text: str) -> str:
    """What Pillow's built-in font can draw."""
    return text.encode("latin-1", "replace").decode("latin-1")[:60]


def _name(data: Data, split: Split, image: int) -> str:
    name = getattr(data, "name", None)
    return str(name(split, image)) if callable(name) else f"{split} {image}"


def _sizes(found: list[tuple[int, int]]) -> dict[str, list[int]]:
    if not found:
        return {}
    array = np.array(found)
    return {
        "smallest": array.min(0).tolist(),
        "median": np.median(array, axis=0).astype(int).tolist(),
        "largest": array.max(0).tolist(),
    }
