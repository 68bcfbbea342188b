"""Peak memory of a few steps, each subject in a process of its own, beyond what that process held before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from ..training.meters import process_memory
from .processes import in_subprocess
from .timing import Run

STEPS = 2  # the second one has the optimiser's state already


def peak(build: Callable[[], Run]) -> int:
    """Bytes: of the method, its gradients and optimiser, and what its step holds at most."""
    with in_subprocess(partial(_measured, build)) as measured:
        found: int = measured()
    return found


def _measured(build: Callable[[], Run]) -> Callable[[], int]:
    def measure() -> int:
        before = process_memory("VmRSS")
        run = build()
        for _ in range(STEPS):
            run()
        if torch.cuda.is_initialized():
            return torch.cuda.max_memory_allocated()
        return process_memory("VmHWM") - before

    return measure
