"""A file of a network and pictures become labels with probabilities, batch by batch."""

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
from ..errors import GivenUp, InputError, reason
from ..methods.task import SINGLE_LABEL, Task, task_named
from ..models.metadata import Metadata
from .deadline import within_deadline
from .exported import ExportedNetwork, Outputs
from .pictures import load_picture

TOP = 5
"""Classes that are named by default."""
LARGEST_BATCH = 2**26
"""The most pixels that go through the network together."""


@dataclass
class Prediction:
    """The labels of one picture; none where the picture could not be read.

    top:          the likeliest classes with their probabilities; with several labels an image, all that are above
        their thresholds, perhaps none.
    disagreement: of an ensemble, the distance between its peers: the L2 distance between the probabilities of
        two of them, averaged over the pairs (0: they agree; sqrt(2): each is certain of another class).
    """

    image: str
    top: list[tuple[str, float]]
    disagreement: float | None = None
    problem: str | None = None
    several: bool = False

    def as_dict(self) -> dict[str, Any]:
        if self.problem is not None:
            return {"image": self.image, "problem": self.problem}
        labels = [{"label": label, "probability": p} for label, p in self.top]
        row: dict[str, Any] = {"image": self.image, "labels" if self.several else "top": labels}
        return row if self.disagreement is None else {**row, "disagreement": self.disagreement}


def predict_pictures(
    exported: ExportedNetwork, names: Iterable[str], top: int | None = None, batch: int = 64
) -> Iterator[Prediction]:
    """Yield predictions for files, folders and `-`, in order, with at most one batch of pictures in memory.

    `top` is how many classes are named, by default 5; of several labels an image, all above their thresholds are.
    """
    for option, value in (("top", top), ("batch", batch)):
        if value is not None and value < 1:
            raise InputError(f"`{option}` must be at least 1, not {value}.")
    if top is not None and not task_named(exported.metadata.task).one_label:
        raise InputError(
            "The network gives several labels an image, all that are above their thresholds: leave out `top`."
        )
    preprocessing = exported.metadata.input
    if preprocessing["channels"] not in (1, 3):
        raise InputError(
            f"Its input has {preprocessing['channels']} channels, which no picture file has: call the network in "
            "its own runtime."
        )
    if preprocessing["mean"] is None:
        raise InputError(
            "The file cannot say how a picture becomes its input, for the data set it was trained on made its "
            "tensors itself: prepare them the same way and call the network in its own runtime."
        )
    files = list_pictures(names)
    shape = exported.metadata.shape
    batch = max(1, min(batch, LARGEST_BATCH // (shape[1] * shape[2])))

    def load(file: Path) -> Tensor | InputError:
        try:
            return load_picture(file, preprocessing)
        except InputError as error:
            return error

    # Pillow decodes outside of Python's lock, so threads help.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while batch_files := list(islice(files, batch)):
            yield from _label(exported, batch_files, list(pool.map(load, batch_files)), top or TOP)


def list_pictures(names: Iterable[str]) -> Iterator[Path]:
    """Yield every picture named: a file, a folder's pictures with those below it, `-` for names from the standard
    input, one per line."""
    for name in names:
        if name == "-":
            yield from list_pictures(_input_lines())
        elif os.path.isdir(name):  # noqa: PTH112 (Path's raises where a name is too long or closed to us)
            yield from _pictures_below(name)
        else:
            yield Path(name)


def _pictures_below(name: str) -> Iterator[Path]:
    """Yield the pictures in a folder and below it; folders that cannot be opened come last, to be reported."""
    closed: list[Path] = []
    for folder, folders, files in os.walk(name, onerror=lambda error: closed.append(Path(error.filename))):
        folders.sort()
        for file in sorted(files):
            if Path(file).suffix.lower() in SUFFIXES and not file.startswith("."):
                yield Path(folder, file)
    yield from closed


def _input_lines() -> Iterator[str]:
    """Yield names as the file system has them, whatever their encoding."""
    for line in sys.stdin.buffer:
        if b"\0" in line:
            raise InputError(
                "- reads names of pictures from the standard input, one per line, not a picture itself."
            )
        if line.strip() not in (b"", b"-"):
            yield os.fsdecode(line.rstrip(b"\r\n"))


def _label(
    exported: ExportedNetwork, files: list[Path], pictures: list[Tensor | InputError], top: int
) -> Iterator[Prediction]:
    """Yield the predictions of a batch, some pictures of which could not be read."""
    task = task_named(exported.metadata.task)
    images = [picture for picture in pictures if isinstance(picture, Tensor)]
    labels: Iterator[tuple[list[tuple[str, float]], float | None]] = iter(())
    if images:
        logits, peers = _run(exported, torch.stack(images))
        t = exported.metadata.temperature
        best = _chosen(logits.float() / t, exported.metadata, top)
        apart = [None] * len(best) if peers is None else disagreement(peers / t, task).tolist()
        labels = zip(best, apart, strict=True)
    for file, picture in zip(files, pictures, strict=True):
        if isinstance(picture, Tensor):
            yield Prediction(str(file), *next(labels), several=not task.one_label)
        else:
            yield Prediction(str(file), [], problem=str(picture))


def _chosen(logits: Tensor, metadata: Metadata, top: int) -> list[list[tuple[str, float]]]:
    """Return the labels of each image, the likeliest first: `top` of them, or all above their thresholds."""
    task, names = task_named(metadata.task), metadata.classes
    p = task.probabilities(logits)
    values, index = p.topk(min(top, len(names)) if task.one_label else len(names), dim=1)
    rows = zip(index.tolist(), values.tolist(), strict=True)
    best = [[(c, value) for c, value in zip(classes, ps, strict=True)] for classes, ps in rows]
    if not task.one_label:
        thresholds = None if metadata.thresholds is None else torch.tensor(metadata.thresholds).double()
        yes = task.decisions(logits, thresholds).tolist()
        best = [[(c, value) for c, value in row if above[c]] for row, above in zip(best, yes, strict=True)]
    return [[(names[c], value) for c, value in row] for row in best]


def _run(exported: ExportedNetwork, batch: Tensor) -> Outputs:
    """Run a batch; refuse outputs that are not what the metadata says, and a network that does not end."""
    try:
        logits, peers = within_deadline(lambda: exported.run(batch), "The network's answer", len(batch))
    except GivenUp:
        raise
    except Exception as error:  # whatever the runtime raises: the network does not take what the metadata says
        shape = "x".join(map(str, batch.shape[1:]))
        raise InputError(f"The network in the file does not take images of {shape}: {reason(error)}") from None
    classes = len(exported.metadata.classes)
    shape_of_logits = (len(batch), classes)
    if logits.shape != shape_of_logits or not (
        peers is None or (peers.dim() == 3 and peers.shape[::2] == shape_of_logits)
    ):
        raise InputError(
            f"The file names {classes} classes, but its network gives an output of {tuple(logits.shape)}: "
            "its metadata is wrong, export it again."
        )
    if not logits.isfinite().all():
        raise InputError("The network in the file gives no numbers (NaN or infinite): export a healthy one.")
    return logits, peers


def disagreement(peers: Tensor, task: Task = SINGLE_LABEL) -> Tensor:
    """Return Fig. 4's distance between peers, image by image: (B, m, C) logits -> (B)."""
    p = task.probabilities(peers.float())
    pairs = [(p[:, a] - p[:, b]).norm(dim=-1) for a, b in combinations(range(p.shape[1]), 2)]
    return torch.stack(pairs).mean(0) if pairs else torch.zeros(len(p))
