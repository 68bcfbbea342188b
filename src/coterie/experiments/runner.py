"""The runner: does what is missing of a list of jobs, wherever a launcher has room for them."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Protocol

from .job import Job
from .launch_local import execute
from .state import failure_file, state


class Launcher(Protocol):
    """Where runs are executed."""

    slots: int
    """How many at once."""

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        """Execute a job, whose weights another one may need; the future tells why it failed, or None."""

    def stop(self) -> None:
        """Ask all runs to save and stop."""


class Local:
    """Processes on this machine: one per GPU, or so many on its cores.

    Args:
        out: the directory of runs.
        root: where the data lies, as seen from `out`, by data set.
        processes: how many runs at once; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each.
    """

    def __init__(self, out: Path, root: Mapping[str, str], processes: int | None, threads: int) -> None:
        self.out, self.root, self.stopping = out, root, threading.Event()
        places = environments(threads, processes)
        self.slots = len(places)
        self._places: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        for place in places:
            self._places.put(place)
        self._pool = ThreadPoolExecutor(self.slots)

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        return self._pool.submit(self._execute, job, weights)

    def _execute(self, job: Job, weights: bool) -> str | None:
        place = self._places.get()
        try:
            return execute(self.out, job, weights, self.root[str(job.options["data"])], place, self.stopping)
        finally:
            self._places.put(place)

    def stop(self) -> None:
        self.stopping.set()
        self._pool.shutdown(cancel_futures=True)


def environments(threads: int, processes: int | None) -> list[dict[str, str]]:
    """The variables that give each of so many processes its GPU, in turn, and its threads."""
    import torch

    from ..data.streaming import cores

    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = told.split(",") if told else [str(i) for i in range(torch.cuda.device_count())]
    gpus = gpus if torch.cuda.is_available() else []
    count = processes or len(gpus) or max(1, cores() // threads)
    base = {"OMP_NUM_THREADS": str(threads)}
    return [base | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}) for i in range(count)]


def run(jobs: Sequence[Job], out: Path, launcher: Launcher) -> dict[str, str]:
    """Execute what is not done, teachers first. Returns the runs that failed, and why."""
    (out / "logs").mkdir(parents=True, exist_ok=True)
    needed = teachers(jobs, out)
    waiting = [job for job in jobs if state(out, job, weights=job.name in needed).kind != "done"]
    total, failed, running = len(waiting), dict[str, str](), dict[Future[str | None], Job]()
    unfinished = {job.name for job in waiting}
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or running:
            for job in list(waiting):
                if job.needs is not None and job.needs.name in failed:
                    failed[job.name] = f"its teacher {job.needs.name} failed"
                    failure_file(out, job).write_text(failed[job.name] + "\n")
                    waiting.remove(job)
                elif len(running) < launcher.slots and (job.needs is None or job.needs.name not in unfinished):
                    running[launcher.submit(job, job.name in needed)] = job
                    waiting.remove(job)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                unfinished.discard(job.name)
                if reason := _outcome(future):
                    failed[job.name] = reason
                say(f"[{total - len(waiting) - len(running)}/{total}] {job.name}: {reason or 'done'}")
    finally:
        launcher.stop()
        signal.signal(signal.SIGTERM, previous)
    return failed


def teachers(jobs: Sequence[Job], out: Path) -> set[str]:
    """The runs, by name, whose weights are needed by others that are not done."""
    return {job.needs.name for job in jobs if job.needs is not None and state(out, job).kind != "done"}


def _outcome(future: Future[str | None]) -> str | None:
    """Why a run failed, or None. What goes wrong around one of them does not end the others."""
    try:
        return future.result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
