"""All that a training is at one moment, and the file it comes back from."""

from __future__ import annotations

import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..config.schedule import Rates
from ..errors import Failure, InputError, reason, warn
from ..files import replacing
from ..methods import Method
from .distributed import World
from .meters import Watch
from .precision import Precision

COST = 0.01
"""At most this share of the time goes into checkpoints at the ends of epochs, however short these are."""


@dataclass
class State:
    """What changes while a run goes. No random state is among it: every draw is a function of seed and step.

    epoch: finished epochs, evaluated and logged where that was due.
    step:  finished steps, which together with `epoch` is the position in the data.
    """

    method: Method
    optimizer: torch.optim.Optimizer
    rates: Rates
    precision: Precision
    watch: Watch
    epoch: int = 0
    step: int = 0

    def capture(self, world: World) -> dict[str, Any]:
        """Plain values and tensors; every process must call it, as each has seen other images."""
        self.watch.check()
        norms = torch.stack(torch._foreach_norm(list(self.method.parameters())))
        if not norms.isfinite().all():
            raise Failure(
                f"After step {self.step} weights are no longer finite: the last checkpoint is kept; lower the "
                "learning rate, or set --clip-norm."
            )
        return {
            "epoch": self.epoch,
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "precision": self.precision.state_dict(),
            "watch": world.gather(self.watch.state_dict()),
            "versions": versions(),
        }

    def restore(self, saved: dict[str, Any], world: World) -> None:
        """Become what was captured, also by another number of processes."""
        if saved["versions"] != versions():
            was = ", ".join(f"{name} {version}" for name, version in saved["versions"].items())
            warn(f"this run was begun with {was}: its numbers may differ in their last digits.")
        self.epoch, self.step = saved["epoch"], saved["step"]
        try:
            self.method.load_state_dict(saved["method"])
            self.optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"The checkpoint does not fit this code's network or optimiser: {reason(error)}"
            ) from error
        self.rates.load_state_dict(saved["rates"])
        self.precision.load_state_dict(saved["precision"])
        self.watch.load_state_dict(saved["watch"], world.rank, world.size)


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
        with replacing(self.newest, keep=self.previous) as part:
            with part.open("wb") as file:
                torch.save(state, file)
            _read(part, mmap=True)  # before the old one is given up
        self.last = time.monotonic()
        self.cost = self.last - started

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read; None if nothing was saved yet."""
        found = [file for file in (self.newest, self.previous) if file.exists()]
        for file in found:
            try:
                return _read(file)
            except Exception as error:  # damage shows itself as almost anything
                warn(f"{file} is damaged ({error}).")
        if found:
            names = " and ".join(file.name for file in found)
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


def versions() -> dict[str, str]:
    return {"coterie": __version__, "torch": str(torch.__version__)}
