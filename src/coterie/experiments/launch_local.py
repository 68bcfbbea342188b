"""Launch runs on this machine: a `coterie train` process for each, which goes on where an earlier one stopped."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from filelock import Timeout

from ..errors import InputError, note
from ..files import lock_file
from ..runs.aside import free_directory
from ..runs.directory import RunDirectory, in_training
from .job import Job
from .run_state import failure_file, log_file, run_state

STOPPED, REFUSED = 75, 2
"""Exit codes of `coterie train`: a signal stopped it, and it was saved; it was refused."""
ASK_TO_STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)
"""What a run saves and stops for; on Windows SIGTERM would end it at once."""


class Interrupted(Exception):
    """The runner was asked to stop."""


class LocalLauncher:
    """Processes on this machine: one per GPU, or so many on its cores.

    Args:
        out: the directory of runs.
        root: where the data lies, as seen from `out`, by data set.
        processes: how many runs at once; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each.
        start_in: where the runs are started, and relative paths among their options begin; by default `out`.
    """

    def __init__(
        self,
        out: Path,
        root: Mapping[str, str],
        processes: int | None,
        threads: int,
        start_in: Path | None = None,
    ) -> None:
        self.out, self.root, self.start_in, self.stopping = out, root, start_in, Event()
        environments = process_environments(threads, processes)
        self.slots = len(environments)
        self._free: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        for environment in environments:
            self._free.put(environment)
        self._pool = ThreadPoolExecutor(self.slots)

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        return self._pool.submit(self._execute, job, weights)

    def _execute(self, job: Job, weights: bool) -> str | None:
        environment = self._free.get()
        try:
            root = self.root.get(str(job.options["data"]), "")
            return execute_job(self.out, job, weights, root, environment, self.stopping, self.start_in)
        finally:
            self._free.put(environment)

    def stop(self) -> None:
        self.stopping.set()
        self._pool.shutdown(cancel_futures=True)


def process_environments(threads: int, processes: int | None) -> list[dict[str, str]]:
    """Return the variables that give each of so many processes its GPU, in turn, and its threads."""
    import torch

    from ..data.streaming import cores

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    gpus = gpus if torch.cuda.is_available() else []
    count = processes or len(gpus) or max(1, cores() // threads)
    base = {"OMP_NUM_THREADS": str(threads)}
    return [base | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}) for i in range(count)]


def execute_job(
    out: Path,
    job: Job,
    weights: bool,
    root: str,
    environment: Mapping[str, str],
    stop: Event | None = None,
    start_in: Path | None = None,
) -> str | None:
    """Train a job to its end, if it is not there yet; with `weights` its network must be there too.

    Returns why it failed, or None. A run that another process trains is waited for. A damaged one, or one whose
    checkpoints are, is moved beside `out`, never deleted, and done anew. Whatever else `coterie train` refuses,
    such as data that is not there, is no reason to give up what was trained.
    """
    stop = stop or Event()
    with _claimed(out, job, stop):
        while True:
            state = run_state(out, job, weights)
            if state.kind == "done":
                return None
            damage = state.note if state.kind == "damaged" else _unreadable(out / job.name, state.kind)
            if damage:
                _aside(out, job, damage)
            failure_file(out, job).unlink(missing_ok=True)
            code = _train(out, job, root, environment, stop, start_in)
            if run_state(out, job).kind == "done":
                return None
            if code != REFUSED or not in_training(out / job.name):
                break
            _wait_for_orphan(out, job, stop)  # it was being started when we looked
        reason = f"killed by signal {-code}" if code < 0 else _last_line(out, job) or f"exit code {code}"
        if code not in (STOPPED, 128 + signal.SIGINT):
            failure_file(out, job).write_text(reason + "\n", encoding="utf-8")
        return reason


@contextmanager
def _claimed(out: Path, job: Job, stop: Event) -> Iterator[None]:
    """Hold a job's lock, once no other runner holds it and no training of a runner that was killed goes on."""
    lock = lock_file(out / "logs" / f"{job.name}.lock")
    while True:
        try:
            lock.acquire()
            break
        except Timeout:
            if stop.wait(0.5):
                raise Interrupted from None
    try:
        _wait_for_orphan(out, job, stop)
        yield
    finally:
        lock.release()


def _wait_for_orphan(out: Path, job: Job, stop: Event) -> None:
    """Wait while a process that is not ours trains in the run's directory: its runner was killed, it was not."""
    while in_training(out / job.name):
        if stop.wait(0.5):
            raise Interrupted


def _train(
    out: Path,
    job: Job,
    root: str,
    environment: Mapping[str, str],
    stop: Event,
    start_in: Path | None,
) -> int:
    """Run the command in `out`, so that what it stores names no place outside, or in `start_in`.

    There, what a user's script can import, the run can as well. Returns the exit code.
    """
    directory = Path(job.name) if start_in is None else out.resolve() / job.name
    # -P: a file coterie.py in that directory is not taken for the package.
    command = [sys.executable, "-P", "-m", "coterie", "train", *job.flags(root), "--out", str(directory)]
    variables = {**os.environ, **environment}
    paths = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths += [] if start_in is None else sys.path[:1]
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in paths)
    with log_file(out, job).open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} coterie {' '.join(command[4:])}\n")
        log.flush()
        process = subprocess.Popen(
            command,
            cwd=start_in or out,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C reaches the runner alone, which asks each run to save and stop: a session, on Windows a group.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        try:
            while process.poll() is None:
                if stop.wait(0.1):
                    raise Interrupted
        except BaseException:
            process.send_signal(ASK_TO_STOP)
            process.wait()
            raise
    return process.returncode


def _unreadable(path: Path, kind: str) -> str:
    """Return why `coterie train` could not go on with a partial run, or nothing."""
    if kind != "partial":
        return ""
    try:
        RunDirectory(path).check_state()
    except InputError:
        return "no checkpoint of it can be used"
    return ""


def _aside(out: Path, job: Job, reason: str) -> None:
    """Move a run's directory out of the way, to a new name beside `out`."""
    target = free_directory(out, job.name)
    target.parent.mkdir(exist_ok=True)
    shutil.move(out / job.name, target)  # also where `out` is a file system of its own
    note(f"{job.name} cannot be continued ({reason}): moved to {target}, done anew.")


def _last_line(out: Path, job: Job) -> str:
    lines = log_file(out, job).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("coterie: ") if lines else ""
