"""An exported file and pictures become labels with probabilities, batch by batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.images import SUFFIXES
from ..errors import InputError, reason
from . import images
from .formats import Loaded


@dataclass
class Prediction:
    """What a file says about one picture; without labels where the picture could not be read.

    disagreement: of an ensemble, how far its peers are apart: the L2 distance between the softmax outputs of two
        of them, averaged over the pairs (0: of one mind; sqrt(2): each certain of another class).
    """

    image: str
    top: list[tuple[str, float]]
    disagreement: float | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        if self.problem is not None:
            return {"image": self.image, "problem": self.problem}
        found: dict[str, Any] = {
            "image": self.image,
            "top": [{"label": label, "probability": p} for label, p in self.top],
        }
        return found if self.disagreement is None else {**found, "disagreement": self.disagreement}


def predict(loaded: Loaded, names: Iterable[str], top: int = 5, batch: int = 64) -> Iterator[Prediction]:
    """Predictions for files, folders and `-`, in order; at most one batch of pictures is in memory."""
    if top < 1 or batch < 1:
        raise InputError("--top and --batch must be at least 1.")
    preparation = loaded.metadata.input
    if preparation["channels"] not in (1, 3):
        raise InputError(
            f"Its input has {preparation['channels']} channels, which no picture file is known to have: call the "
            "network in its own runtime."
        )
    if preparation["mean"] is None:
        raise InputError(
            "The file cannot say how a picture becomes its input, for the data set it was trained on made its "
            "tensors itself: prepare them the same way and call the network in its own runtime."
        )
    files = find(names)

    def read(file: Path) -> Tensor | InputError:
        try:
            return images.load(file, preparation)
        except InputError as problem:
            return problem

    # Pillow decodes outside of Python's lock, so threads help.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while some := list(islice(files, batch)):
            yield from _label(loaded, some, list(pool.map(read, some)), top)


def find(names: Iterable[str]) -> Iterator[Path]:
    """Every picture named: a file as it is, a folder's pictures in order with those below, `-` reads names from
    the standard input, one per line."""
    for name in names:
        if name == "-":
            yield from find(_lines())
        elif os.path.isdir(name):  # noqa: PTH112 (Path's raises where a name is too long or closed to us)
            yield from _below(name)
        else:
            yield Path(name)


def _below(name: str) -> Iterator[Path]:
    """The pictures in a folder and all below it; folders that cannot be opened come last, to be told of."""
    closed: list[Path] = []
    for folder, below, inside in os.walk(name, onerror=lambda error: closed.append(Path(error.filename))):
        below.sort()
        yield from (Path(folder, file) for file in sorted(inside) if is_picture(file))
    yield from closed


def _lines() -> Iterator[str]:
    """Names as the file system has them, whatever their encoding."""
    for line in sys.stdin.buffer:
        if b"\0" in line:
            raise InputError(
                "- reads names of pictures from the standard input, one per line, not a picture itself."
            )
        if line.strip() not in (b"", b"-"):
            yield os.fsdecode(line.rstrip(b"\r\n"))


def is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")


def _label(loaded: Loaded, files: list[Path], read: list[Tensor | InputError], top: int) -> Iterator[Prediction]:
    good = [image for image in read if isinstance(image, Tensor)]
    results: Iterator[Prediction] = iter(())
    if good:
        logits, peers = _run(loaded, torch.stack(good))
        names = loaded.metadata.classes
        wanted = (len(good), len(names))
        if logits.shape != wanted or not (peers is None or (peers.dim() == 3 and peers.shape[::2] == wanted)):
            raise InputError(
                f"The file names {len(names)} classes, but its network gives an output of {tuple(logits.shape)}: "
                "its metadata is wrong, export it again."
            )
        if not logits.isfinite().all():
            raise InputError("The network in the file gives no numbers (NaN or infinite): export a healthy one.")
        t = loaded.metadata.temperature
        values, index = (logits.float() / t).softmax(1).topk(min(top, len(names)), dim=1)
        apart = [None] * len(good) if peers is None else disagreement(peers / t).tolist()
        results = iter(
            [
                Prediction("", [(names[i], p) for i, p in zip(row, ps, strict=True)], d)
                for row, ps, d in zip(index.tolist(), values.tolist(), apart, strict=True)
            ]
        )
    for file, image in zip(files, read, strict=True):
        if isinstance(image, Tensor):
            prediction = next(results)
            prediction.image = str(file)
            yield prediction
        else:
            yield Prediction(str(file), [], problem=str(image))


def _run(loaded: Loaded, batch: Tensor) -> tuple[Tensor, Tensor | None]:
    try:
        return loaded.run(batch)
    except Exception as error:  # whatever the runtime raises: the network does not take what the metadata says
        shape = "x".join(map(str, batch.shape[1:]))
        raise InputError(f"The network in the file does not take images of {shape}: {reason(error)}") from None


def disagreement(peers: Tensor) -> Tensor:
    """(B, m, C) logits -> (B): Fig. 4's distance between peers, image by image."""
    p = peers.float().softmax(-1)
    pairs = [(p[:, a] - p[:, b]).norm(dim=-1) for a, b in combinations(range(p.shape[1]), 2)]
    return torch.stack(pairs).mean(0) if pairs else torch.zeros(len(p))
