"""Peak memory of a few steps, each subject in a process of its own, beyond what that process held before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from .. import health
from .processes import elsewhere
from .timing import Run

STEPS = 2  # the second one has the optimiser's state already


def peak(build: Callable[[], Run]) -> int:
    """Bytes: of the method, its gradients and optimiser, and what its step holds at most."""
    with elsewhere(partial(_measured, build)) as measured:
        found: int = measured()
    return found


def _measured(build: Callable[[], Run]) -> Callable[[], int]:
    def measure() -> int:
        before = _held("VmRSS")
        run = build()
        for _ in range(STEPS):
            run()
        if torch.cuda.is_initialized():
            return torch.cuda.max_memory_allocated()
        return _held("VmHWM") - before

    return measure


def _held(field: str) -> int:
    """Of this process. Linux hands `ru_maxrss` on to children, which would start with their parent's peak."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return health.memory(torch.device("cpu"))
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])
