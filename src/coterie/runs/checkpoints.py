"""Write and read the checkpoint files of a run: the newest state, and the one before it."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from ..errors import InputError, reason, warn
from ..files import atomic_path, check_regular
from .identity import MissingRecords, State, restart_hint

COST = 0.01
"""The largest share of the time that checkpoints at the ends of epochs may take."""


class Checkpoints:
    """`checkpoint.pt`, and the previous one in case the newest is damaged."""

    def __init__(self, directory: Path) -> None:
        self.newest, self.previous = directory / "checkpoint.pt", directory / "checkpoint.previous.pt"
        self.every, self.cost, self.last = float("inf"), 0.0, time.monotonic()
        self.unusable: Path | None = None
        """The newest file, where `load` has returned the previous one."""

    def due(self, epoch_ended: bool = False) -> bool:
        """Tell whether to save: after `every` seconds, and at the end of an epoch unless that costs too much."""
        since = time.monotonic() - self.last
        return since >= self.every or (epoch_ended and since >= self.cost / COST)

    def save(self, state: State) -> None:
        """Write a state; the previous one is given up only after the new file has been read back."""
        started = time.monotonic()
        with atomic_path(self.newest, keep=self.previous) as part:
            with part.open("wb") as file:
                torch.save(state, file)
            _read(part, mmap=True)
        self.last = time.monotonic()
        self.cost = self.last - started

    def load(self, check: Callable[[Path, State], None] = lambda file, state: None) -> State | None:
        """Return the newest state that can be used, or None if nothing was saved yet.

        Args:
            check: raises an InputError for a state that the user must look at, and any other exception for one
                in whose place the previous one may be taken.
        """
        files = [file for file in (self.newest, self.previous) if file.exists()]
        problems: list[str] = []
        for file in files:
            try:
                state = _read(file)
                check(file, state)
            except InputError:
                raise
            except MissingRecords as error:
                problems.append(f"{error}, which {file.name} needs")
            except Exception as error:  # a damaged file may raise almost anything
                problems.append(f"{file.name} is damaged ({reason(error)})")
            else:
                if problems:
                    self.unusable = self.newest
                    warn(f"{problems[0]}: {file}, of step {state.get('step')}, is used instead.")
                return state
        if files:
            raise InputError(
                f"{self.newest.parent} has no checkpoint that can be used: {'; '.join(problems)}. Put copies of "
                f"these files in their place, or {restart_hint(self.newest.parent)}."
            )
        return None


def _read(file: Path, mmap: bool = False) -> State:
    """Load a state after verifying its checksums, which torch.load does not."""
    check_regular(file)
    with zipfile.ZipFile(file) as archive:
        if (entry := archive.testzip()) is not None:
            raise OSError(f"{entry} is not what was written")
    state: State = torch.load(file, weights_only=True, map_location="cpu", mmap=mmap)
    return state
