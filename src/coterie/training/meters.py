"""Whether a run is well: sums of its loss terms, the step where one stopped being a number, memory, speed."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config.recipe import Recipe
from ..data.sampler import Piece
from ..errors import Failure, InputError
from .distributed import World


class _Seen(NamedTuple):
    step: int
    rate: float
    images: NDArray[np.int64]
    finite: Tensor


class LossMeter:
    """The loss terms since the last record, summed on the device; it is waited for only now and then."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.patience = 1 if device.type == "cpu" else 50
        self.seen: list[_Seen] = []
        self.reset()

    def reset(self) -> None:
        """A record was written; the next one begins."""
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=self.device)
        self.images = 0
        self.before = 0.0  # seconds of it in earlier processes
        self.started = time.perf_counter()

    def add(self, terms: dict[str, Tensor], piece: Piece, step: int, rate: float) -> None:
        values = torch.stack([value.detach().double() for value in terms.values()])
        if not self.names:
            self.names, self.sums = list(terms), torch.zeros_like(values)
        self.sums += values * piece.size
        self.images += piece.size
        self.seen.append(_Seen(step, rate, piece.images, values.isfinite()))
        if len(self.seen) >= self.patience:
            self.check()

    def check(self) -> None:
        """Stop the run if a term was no number in a step since the last check, and say where."""
        seen, self.seen = self.seen, []
        if not seen:
            return
        finite = torch.stack([s.finite for s in seen])
        if finite.all():
            return
        bad = int((~finite.all(1)).nonzero()[0, 0])
        names = ", ".join(n for n, ok in zip(self.names, finite[bad].tolist(), strict=True) if not ok)
        step, rate, images, _ = seen[bad]
        raise Failure(
            f"Not a finite number at step {step}: {names} (learning rate {rate:g}, training images "
            f"{', '.join(map(str, images))}). The last good checkpoint is kept; lower the learning rate, set "
            "--clip-norm or --warmup, or use --precision 32."
        )

    def means(self, world: World | None = None) -> dict[str, float]:
        """Each term's mean over the images since the last record: by this process, or by all."""
        self.check()
        mine = (self.names, self.sums.cpu(), self.images)
        parts = [part for part in (world.gather(mine) if world else [mine]) if part[0]]
        if not parts:
            return {}
        total = torch.stack([sums for _, sums, _ in parts]).sum(0) / sum(count for _, _, count in parts)
        return dict(zip(parts[0][0], total.tolist(), strict=True))

    @property
    def seconds(self) -> float:
        """How long has been trained since the last record."""
        return self.before + time.perf_counter() - self.started

    def state_dict(self) -> dict[str, Any]:
        return {"names": self.names, "sums": self.sums.cpu(), "images": self.images, "seconds": self.seconds}

    def load_state_dict(self, saved: list[dict[str, Any]], rank: int, size: int) -> None:
        """Take up the sums of this process; where their number changed, the first takes those of all."""
        self.reset()
        self.before = saved[0]["seconds"]
        mine = saved[rank : rank + 1] if len(saved) == size else saved if rank == 0 else []
        for part in (part for part in mine if part["names"]):
            sums = part["sums"].to(self.device)
            self.names, self.sums = part["names"], sums if not self.names else self.sums + sums
            self.images += part["images"]


def memory(device: torch.device) -> int:
    """The most bytes held so far: on the GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return process_memory("VmHWM")


def process_memory(field: Literal["VmHWM", "VmRSS"]) -> int:
    """Bytes that this process holds (VmRSS), or held at most (VmHWM), as Linux counts them.

    Not by `ru_maxrss`, if it can be helped: on Linux that survives `exec`, so that a process which a large one
    started would begin with its peak. Elsewhere it is right, but knows the peak alone; a system that has
    neither gives 0.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource  # not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def advice(recipe: Recipe) -> Iterator[None]:
    """Where memory runs out, batch-norm meets a single image, or a network cannot be compiled, say what helps."""
    try:
        yield
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "Batch-norm cannot be trained with one image at a time: raise --batch, or lower --accumulate."
        ) from error
    except (MemoryError, RuntimeError) as error:
        if recipe.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            why = str(error).strip().splitlines()[0]
            raise InputError(f"The peers cannot be compiled ({why}): leave out --compile.") from error
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not out_of_memory and not re.search("can't allocate memory|out of memory", str(error)):
            raise
        half = "" if recipe.precision != "32" else "--precision bf16, "
        raise Failure(
            f"Out of memory with a batch of {recipe.batch}: --accumulate 2 (or more) computes it in parts, {half}"
            "more processes, fewer --peers, a later --cut or a smaller --batch help too. "
            "The last checkpoint is kept."
        ) from error
