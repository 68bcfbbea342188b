"""Train what is missing of a list of jobs, wherever a launcher has room for them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import FrameType
from typing import Protocol

from ..errors import WARNING, Failure, printable, warn
from .job import Job
from .launch_local import LocalLauncher
from .launch_ray import RayLauncher
from .run_state import failure_file, log_file, run_state


class Launcher(Protocol):
    """Where runs are executed."""

    slots: int
    """How many at once."""

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        """Execute a job, whose weights another one may need; the future has why it failed, or None."""

    def stop(self) -> None:
        """Ask all runs to save and stop."""


LAUNCHERS: dict[str, Callable[..., Launcher]] = {"local": LocalLauncher, "ray": RayLauncher}
"""By name; each takes (out, root, processes, threads, start_in)."""


def run_jobs(jobs: Sequence[Job], out: Path, launcher: Launcher) -> dict[str, str]:
    """Execute what is not done, teachers first. Returns the runs that failed, and why."""
    (out / "logs").mkdir(parents=True, exist_ok=True)
    needed = needed_teachers(jobs, out)
    waiting = [job for job in jobs if run_state(out, job, weights=job.name in needed).kind != "done"]
    total, failed, running = len(waiting), dict[str, str](), dict[Future[str | None], Job]()
    unfinished, warnings = {job.name for job in waiting}, set[str]()
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or running:
            for job in list(waiting):
                if job.needs is not None and job.needs.name in failed:
                    failed[job.name] = f"its teacher {job.needs.name} failed"
                    failure_file(out, job).write_text(failed[job.name] + "\n", encoding="utf-8")
                    waiting.remove(job)
                elif len(running) < launcher.slots and (job.needs is None or job.needs.name not in unfinished):
                    running[launcher.submit(job, job.name in needed)] = job
                    waiting.remove(job)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                unfinished.discard(job.name)
                if reason := _outcome(future):
                    failed[job.name] = reason
                print_status(f"[{total - len(waiting) - len(running)}/{total}] {job.name}: {reason or 'done'}")
                for warning in _read_warnings(out, job):
                    if warning not in warnings:  # most are the same for every seed
                        warn(f"{job.name}: {warning}")
                        warnings.add(warning)
    finally:
        launcher.stop()
        signal.signal(signal.SIGTERM, previous)
    return failed


def raise_failed(failed: Mapping[str, str]) -> None:
    """End the command if runs failed, and say why each did."""
    if failed:
        reasons = "; ".join(f"{name} failed: {reason}" for name, reason in failed.items())
        raise Failure(f"{reasons}; the same command tries again.")


def needed_teachers(jobs: Sequence[Job], out: Path) -> set[str]:
    """Return the runs, by name, whose weights are needed by others that are not done."""
    return {job.needs.name for job in jobs if job.needs is not None and run_state(out, job).kind != "done"}


def _outcome(future: Future[str | None]) -> str | None:
    """Return why a run failed, or None. What goes wrong around one of them does not end the others."""
    try:
        return future.result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _read_warnings(out: Path, job: Job) -> list[str]:
    """Return the warnings of a run from its log: it has no screen of its own."""
    log = log_file(out, job)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    start = f"coterie: {WARNING}"
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def print_status(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
