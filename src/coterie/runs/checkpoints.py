"""The checkpoint files of a run: the newest state, and the one before it."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, warn
from ..files import atomic_path

COST = 0.01
"""At most this share of the time goes into checkpoints at the ends of epochs, however short these are."""


class Checkpoints:
    """`checkpoint.pt`, and the one before it for the day the newest turns out to be damaged."""

    def __init__(self, directory: Path) -> None:
        self.newest, self.previous = directory / "checkpoint.pt", directory / "checkpoint.previous.pt"
        self.every, self.cost, self.last = float("inf"), 0.0, time.monotonic()

    def due(self, epoch_ended: bool = False) -> bool:
        """Whether to save now: after `every` seconds, and when an epoch ends unless saving would cost too much."""
        since = time.monotonic() - self.last
        return since >= self.every or (epoch_ended and since >= self.cost / COST)

    def save(self, state: dict[str, Any]) -> None:
        started = time.monotonic()
        with atomic_path(self.newest, keep=self.previous) as part:
            with part.open("wb") as file:
                torch.save(state, file)
            _read(part, mmap=True)  # before the old one is given up
        self.last = time.monotonic()
        self.cost = self.last - started

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read; None if nothing was saved yet."""
        files = [file for file in (self.newest, self.previous) if file.exists()]
        for file in files:
            try:
                return _read(file)
            except Exception as error:  # damage shows itself as almost anything
                warn(f"{file} is damaged ({error}).")
        if files:
            names = " and ".join(file.name for file in files)
            raise InputError(
                f"{names} in {self.newest.parent} cannot be read: remove them to train from the start."
            )
        return None


def _read(file: Path, mmap: bool = False) -> dict[str, Any]:
    """A state whose checksums are right; torch.load does not look at them."""
    with zipfile.ZipFile(file) as archive:
        if (entry := archive.testzip()) is not None:
            raise OSError(f"{entry} is not what was written")
    state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu", mmap=mmap)
    return state
