"""End a training that makes no progress, so that whatever started it can start it again."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TypeVar

import torch

from ..signals import Signals
from ..stalls import StallTimer, end_now

LONGEST_STEP = 1800.0
"""Seconds that a step, a batch of an evaluation or a checkpoint may take."""
FIRST_STEP = 4 * LONGEST_STEP
"""The first step of a process may compile."""
GRACE = 25.0
"""Seconds between SIGTERM and the end of the step: SLURM, Kubernetes and torchrun send SIGKILL after 30."""

T = TypeVar("T")


class Watchdog:
    """Watch a training from a thread, inside a context.

    Without progress for `LONGEST_STEP` the process ends with exit code 1. After SIGTERM it ends with exit code 75
    if the step is not over within `GRACE`, or within twice the time of the longest step so far; a save that has
    begun goes on. A step that computes on the CPU is slow, not stalled. Under a debugger and in an interactive
    session nothing is ended.

    Args:
        out: the run directory, where the stacks of all threads are written.
        signals: the stop signals of the training.
        device: where it computes.
    """

    def __init__(self, out: Path, signals: Signals, device: torch.device) -> None:
        self.signals, self.device, self.thread = signals, device, threading.get_ident()
        self.stacks = out / f"stalled-{os.environ.get('RANK', '0')}.txt"
        self.longest, self.last, self.computed = 0.0, time.monotonic(), 0.0
        self.terminated = self.is_saving = False
        self.limit = inf  # nothing but SIGTERM counts before the first step

    def __enter__(self) -> Watchdog:
        self.timer = StallTimer(self._end)
        self.signals.on_sigterm = self._on_sigterm
        return self

    def __exit__(self, *error: object) -> None:
        self.signals.on_sigterm = None
        self.timer.close()

    def begin(self) -> None:
        """Expect the first step from now on."""
        self.limit, self.last = FIRST_STEP, time.monotonic()
        self._reset()

    def progress(self) -> None:
        """Note that a step or a batch is done."""
        now = time.monotonic()
        if self.limit == LONGEST_STEP:  # not the first, which may have compiled
            self.longest = max(self.longest, now - self.last)
        self.limit, self.last = LONGEST_STEP, now
        self._reset()

    def each(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield batches, and note progress with each."""
        for batch in batches:
            yield batch
            self.progress()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Let a checkpoint be written in this context, whatever signal has come."""
        self.is_saving = True
        self._reset()
        try:
            yield
        finally:
            self.is_saving = False
            self._reset()

    def finish(self) -> None:
        """Expect no more steps."""
        self.limit = inf
        self._reset()

    @property
    def _grace(self) -> float:
        """Seconds that the step may take after SIGTERM."""
        return max(GRACE, 2 * self.longest)

    def _reset(self) -> None:
        self.computed = time.process_time()
        waits = self.terminated and not self.is_saving
        self.timer.reset(self._grace if waits else self.limit)

    def _on_sigterm(self) -> None:
        if not self.terminated:
            self.terminated = True
            self._reset()

    def _end(self) -> None:
        if _debugged(self.thread):
            return
        kept = "The last checkpoint is kept; the same command continues from it."
        if self.terminated and not self.is_saving:
            late = f"the step did not end within {self._grace:.0f} seconds"
            end_now(75, f"stopped by SIGTERM without saving, because {late}. {kept}", self.stacks)
        computing = time.process_time() - self.computed > 0.05 * self.limit
        if (self.device.type == "cpu" and computing) or hasattr(sys, "ps1"):
            self.computed = time.process_time()
            return
        stalled = f"No step has ended for {self.limit:.0f} seconds, and the training is given up"
        end_now(1, f"{stalled} ({self.stacks} shows where it was). {kept}", self.stacks)


def _debugged(thread: int) -> bool:
    """Tell whether a debugger follows the thread."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
        return True
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_trace is not None:
            return True
        frame = frame.f_back
    return False
