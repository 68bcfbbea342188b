"""Checks of the pixels that reach a device: views of images in memory, and images read from files by a worker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ..data.folder import folder
from ..data.rng import draws
from .checks import Outcome, compare
from .noise import Noise

IMAGES, VIEWS, SEED, EPOCH, SIDE = 8, 3, 5, 2, 16
PIXELS = {"pixels": 1e-5}
"""The largest difference of a normalised pixel, whose values are from -3 to 3: some roundings of float32."""
WRONG = "images reach this device changed: update torch and the driver, and report it."
COLOURS = {"red": (250, 10, 30), "green": (20, 240, 40), "blue": (0, 60, 255)}


def check_views(device: torch.device) -> Outcome:
    """Cut views on the device, and the same ones by slices of NumPy."""
    data, images = Noise(IMAGES), np.arange(IMAGES)
    data.load()
    views, labels = next(data.stream([images], VIEWS, SEED, EPOCH, device))
    places = draws(SEED, EPOCH, images, VIEWS, 4)
    expected = np.stack([[_view(data, i, places[v, i]) for i in range(IMAGES)] for v in range(VIEWS)])
    pixels = torch.stack(views).cpu().double().numpy()
    wrong = int((labels.cpu().numpy() != data.labels["train"]).sum())
    return compare({"pixels": _largest(pixels - expected), "labels": wrong}, {**PIXELS, "labels": 0}, WRONG)


def _view(data: Noise, image: int, place: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pad an image with black, cut a view out of it, flip it, normalise it."""
    pixels, border = np.asarray(data.original(image), np.float64).transpose(2, 0, 1), data.padding
    padded = np.pad(pixels, ((0, 0), (border, border), (border, border)))
    top, left = (int(number * (2 * border + 1)) for number in place[:2])
    view = padded[:, top : top + pixels.shape[1], left : left + pixels.shape[2]]
    view = view[:, :, ::-1] if place[2] < 0.5 else view
    return _normalised(view, data)


def check_files(device: torch.device) -> Outcome:
    """Read files of one colour each, which no crop or resizing changes, by a worker process."""
    with tempfile.TemporaryDirectory() as root:
        for split in ("train", "val"):
            for name, colour in COLOURS.items():
                place = Path(root, split, name)
                place.mkdir(parents=True)
                for i in range(2):
                    Image.new("RGB", (SIDE + 4 * i, SIDE), colour).save(place / f"{i}.png")
        data = folder(root, SIDE, workers=1)
        data.load()
        ((pixels, labels),) = data.test_batches(100, device=device)
        (views, view_labels), *_ = data.stream([np.arange(data.train_size)], 1, SEED, EPOCH, device)
    largest = 0.0
    for batch, numbers in ((pixels, labels), (views[0], view_labels)):
        colours = np.array([COLOURS[data.classes[n]] for n in numbers.cpu().tolist()], np.float64)
        expected = _normalised(colours[:, :, None, None], data)
        largest = max(largest, _largest(batch.cpu().double().numpy() - expected))
    return compare({"pixels": largest}, PIXELS, WRONG)


def _normalised(pixels: NDArray[np.float64], data: Any) -> NDArray[np.float64]:
    mean, std = (np.array(values).reshape(-1, 1, 1) for values in (data.mean, data.std))
    normalised: NDArray[np.float64] = (pixels / 255 - mean) / std
    return normalised


def _largest(differences: NDArray[np.float64]) -> float:
    return float(np.abs(differences).max())
