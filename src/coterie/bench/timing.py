"""Time subjects in turns with a reference, so that a busy machine slows both; or in processes of their own."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
import torch

from ..errors import Failure
from ..report.table import Cell, text
from ..training.memory import process_memory

Call = Callable[[], object]
_subject: Call  # of a process that `in_subprocess` has started


def summarize_turns(seconds: Sequence[float], ratios: Sequence[float]) -> dict[str, Any]:
    """Return the medians of a subject's turns, and the quartiles of its ratio to the reference."""
    return {
        "seconds": statistics.median(seconds),
        "ratio": statistics.median(ratios),
        "quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
        "turns": len(ratios),
    }


def quartiles_cell(low: float, high: float, unit: str = "") -> Cell:
    return text(f"{low:.2f} to {high:.2f}{unit}")


def time_call(call: Call) -> float:
    """Return the seconds of one call, with all the work that it left to a GPU."""
    synchronize()
    started = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - started


def time_in_turns(reference: Call, subjects: Mapping[str, Call], rounds: int) -> dict[str, dict[str, Any]]:
    """Time each subject in every round between two turns of the reference; its ratio is to their mean.

    A first round warms up and does not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    ratios: dict[str, list[float]] = {name: [] for name in subjects}
    before = time_call(reference)
    for turn in range(rounds + 1):
        for name, subject in subjects.items():
            duration = time_call(subject)
            after = time_call(reference)
            if turn:
                seconds[name].append(duration)
                ratios[name].append(2 * duration / (before + after))
            before = after
    return {name: summarize_turns(seconds[name], ratios[name]) for name in subjects}


def synchronize() -> None:
    """Wait for a GPU in use."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


@contextmanager
def in_subprocess(build: Callable[[], Call]) -> Iterator[Callable[[], Any]]:
    """Build a callable in a new process by a picklable function; yield what calls it there.

    The process is forked from one that has imported torch and used nothing of it, which is quick and safe; on
    Windows, which has no fork, it imports torch itself.
    """
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context: BaseContext = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:
        context.set_forkserver_preload(["coterie.bench.command"])
    with ProcessPoolExecutor(1, context, _initialize, (build,)) as pool:
        try:
            yield lambda: pool.submit(_call).result()
        except BrokenProcessPool:
            raise Failure("A process that measures died: see above.") from None


def _initialize(build: Callable[[], Call]) -> None:
    global _subject
    torch.manual_seed(0)
    _subject = build()


def _call() -> Any:
    value = _subject()
    synchronize()
    return value


def peak_memory(build: Callable[[], Call]) -> int:
    """Return the bytes that two calls hold at most, beyond what their process held before `build`."""
    with in_subprocess(partial(partial, _measure_memory, build)) as measure:
        peak: int = measure()
    return peak


def _measure_memory(build: Callable[[], Call]) -> int:
    before = process_memory("VmRSS")
    call = build()
    for _ in range(2):  # the second one has the optimiser's state already
        call()
    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else process_memory("VmHWM") - before
