"""Write and read the checkpoint files of a run: the newest state, and the one before it."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, reason, warn
from ..files import atomic_path

COST = 0.01
"""The largest share of the time that checkpoints at the ends of epochs may take."""


class Checkpoints:
    """`checkpoint.pt`, and the previous one in case the newest is damaged."""

    def __init__(self, directory: Path) -> None:
        self.newest, self.previous = directory / "checkpoint.pt", directory / "checkpoint.previous.pt"
        self.every, self.cost, self.last = float("inf"), 0.0, time.monotonic()

    def due(self, epoch_ended: bool = False) -> bool:
        """Tell whether to save: after `every` seconds, and at the end of an epoch unless that costs too much."""
        since = time.monotonic() - self.last
        return since >= self.every or (epoch_ended and since >= self.cost / COST)

    def save(self, state: dict[str, Any]) -> None:
        """Write a state; the previous one is given up only after the new file has been read back."""
        started = time.monotonic()
        with atomic_path(self.newest, keep=self.previous) as part:
            with part.open("wb") as file:
                torch.save(state, file)
            _read(part, mmap=True)
        self.last = time.monotonic()
        self.cost = self.last - started

    def load(self) -> dict[str, Any] | None:
        """Return the newest state that can be read, or None if nothing was saved yet."""
        files = [file for file in (self.newest, self.previous) if file.exists()]
        for file in files:
            try:
                return _read(file)
            except Exception as error:  # a damaged file may raise almost anything
                warn(f"{file} is damaged ({reason(error)}).")
        if files:
            names = " and ".join(file.name for file in files)
            raise InputError(
                f"{names} in {self.newest.parent} cannot be read: remove them to train from the start."
            )
        return None


def _read(file: Path, mmap: bool = False) -> dict[str, Any]:
    """Load a state after verifying its checksums, which torch.load does not."""
    with zipfile.ZipFile(file) as archive:
        if (entry := archive.testzip()) is not None:
            raise OSError(f"{entry} is not what was written")
    state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu", mmap=mmap)
    return state
