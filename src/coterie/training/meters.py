"""Average the loss terms of a training, and stop it where one is not finite."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.device import accumulator_dtype
from ..data.sampler import Piece
from ..errors import Failure
from .distributed import World


class _Pending(NamedTuple):
    """A piece of a batch whose terms are to be checked."""

    step: int
    lr: float
    images: NDArray[np.int64]
    finite: Tensor


class LossMeter:
    """Sums of the loss terms since the last record, on the device, which is synchronised only every few steps."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.dtype = device, accumulator_dtype(device)
        self.check_every = 1 if device.type == "cpu" else 50
        self.pending: list[_Pending] = []
        self.reset()

    def reset(self) -> None:
        """Begin the next record."""
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=self.dtype, device=self.device)
        self.images = 0
        self.seconds_before = 0.0  # of this record, in earlier processes
        self.started = time.perf_counter()

    def add(self, terms: dict[str, Tensor], piece: Piece, step: int, lr: float) -> None:
        """Add the terms of a piece of a batch."""
        values = torch.stack([value.detach().to(self.dtype) for value in terms.values()])
        if not self.names:
            self.names, self.sums = list(terms), torch.zeros_like(values)
        self.sums += values * piece.size
        self.images += piece.size
        self.pending.append(_Pending(step, lr, piece.images, values.isfinite()))
        if len(self.pending) >= self.check_every:
            self.check()

    def check(self) -> None:
        """Raise a Failure that names the first step since the last check in which a term is not finite."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        finite = torch.stack([piece.finite for piece in pending])
        if finite.all():
            return
        bad = int((~finite.all(1)).nonzero()[0, 0])
        names = ", ".join(n for n, ok in zip(self.names, finite[bad].tolist(), strict=True) if not ok)
        step, lr, images, _ = pending[bad]
        raise Failure(
            f"Not a finite number at step {step}: {names} (learning rate {lr:g}, training images "
            f"{', '.join(map(str, images))}). The last good checkpoint is kept; lower the learning rate, set "
            "`clip_norm` or `warmup`, or use `precision` 32."
        )

    def means(self, world: World | None = None) -> dict[str, float]:
        """Return each term's mean over the images since the last record: of this process, or of all."""
        self.check()
        mine = (self.names, self.sums.cpu().double(), self.images)
        parts = [part for part in (world.gather(mine) if world else [mine]) if part[0]]
        if not parts:
            return {}
        total = torch.stack([sums for _, sums, _ in parts]).sum(0) / sum(count for _, _, count in parts)
        return dict(zip(parts[0][0], total.tolist(), strict=True))

    @property
    def seconds(self) -> float:
        """Return the seconds of training since the last record."""
        return self.seconds_before + time.perf_counter() - self.started

    def state_dict(self) -> dict[str, Any]:
        return {"names": self.names, "sums": self.sums.cpu(), "images": self.images, "seconds": self.seconds}

    def load_state_dict(self, saved: list[dict[str, Any]], rank: int, size: int) -> None:
        """Load the sums of this process; if the number of processes has changed, rank 0 takes those of all."""
        self.reset()
        self.seconds_before = saved[0]["seconds"]
        mine = saved[rank : rank + 1] if len(saved) == size else saved if rank == 0 else []
        for part in (part for part in mine if part["names"]):
            sums = part["sums"].to(self.device, self.dtype)
            self.names, self.sums = part["names"], sums if not self.names else self.sums + sums
            self.images += part["images"]
