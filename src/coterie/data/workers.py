"""The processes that read images: start them, wait for their batches, say why one failed, end them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from math import inf
from types import FrameType
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils.signal_handling import _remove_worker_pids
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from ..errors import Failure, InputError, reason
from ..signals import STOP_SIGNALS
from ..stalls import StallTimer
from .worker_sockets import make_socket_directory

LONGEST_WAIT = 600.0
"""Seconds that a batch may take: with a few hundred images, about two for each."""
CHECK_EVERY = 1.0
"""Seconds between two looks at the workers while a batch is waited for."""
PATIENCE = 5.0
"""Seconds that workers have to end by themselves."""


class WorkerFailure(Failure):
    """A worker died, hangs, or cannot send its batches."""


class WorkerLoader(DataLoader[Any]):
    """A DataLoader whose failures are one sentence, raised where the next batch is asked for."""

    def _get_iterator(self) -> _BaseDataLoaderIter:
        self.check_worker_number_rationality()
        try:
            return _Batches(self)
        except OSError as error:  # no memory, or no more processes
            raise WorkerFailure(
                f"Data workers could not be started ({reason(error)}): `workers` 0 reads images without workers."
            ) from error

    def end(self) -> None:
        """End the workers and wait for them, for some seconds at most."""
        if isinstance(self._iterator, _Batches):
            self._iterator.end()


class _Batches(_MultiProcessingDataLoaderIter):
    """The batches of the workers, in order."""

    def __init__(self, loader: WorkerLoader) -> None:
        make_socket_directory()
        super().__init__(loader)
        self._loader = loader
        # torch tells of a dead worker by an exception out of a signal handler, in the middle of a step, and the
        # state is lost. Without this list it leaves that to `_get_data`, which is called between steps.
        _remove_worker_pids(id(self))
        self._worker_pids_set = False
        if not self._pin_memory:  # else torch's thread writes to it at the end
            # Without a writer here, half a message of a killed worker ends where the last worker ends.
            self._worker_result_queue._writer.close()  # type: ignore[attr-defined]
        self._waited, self._dead = 0.0, list[Any]()
        self._timer = StallTimer(self._check_while_waiting)  # a thread: not before the workers are forked

    def _get_data(self) -> Any:
        self._waited = 0.0
        self._timer.reset(PATIENCE)
        try:
            while True:
                try:
                    return self._data_queue.get(timeout=CHECK_EVERY)
                except queue.Empty:
                    self._raise_if_dead()
                except Exception as error:  # a handle of a worker that has just died, or too many open files
                    time.sleep(0.2)
                    self._raise_if_dead()
                    raise WorkerFailure(
                        f"A batch could not be taken from its data worker ({reason(error)}): `workers` 0 reads "
                        "images without workers."
                    ) from error
                if self._pin_memory and not self._pin_memory_thread.is_alive():
                    raise WorkerFailure("The thread that pins memory has ended: `workers` 0 needs none.")
        except WorkerFailure:
            self.end()  # now, not at the exit: a caller may go on
            raise
        finally:
            self._timer.reset(inf)

    def _process_data(self, data: Any, *worker: int) -> Any:
        if isinstance(data, ExceptionWrapper):
            self.end()
            raise _explain(data)
        return super()._process_data(data, *worker)

    def _check_while_waiting(self) -> None:
        """Kill all workers if one is dead or no batch has come for too long: that ends any wait for them."""
        self._waited += PATIENCE
        self._dead = self._find_dead()
        if self._dead or self._waited >= LONGEST_WAIT:
            self._kill()

    def _find_dead(self) -> list[Any]:
        """Return the workers that were dead when all were killed, or else those that are now."""
        return self._dead or [worker for worker in self._workers if not worker.is_alive()]

    def _raise_if_dead(self) -> None:
        dead = self._find_dead()
        if not dead:
            return
        if not self._dead and self._waited >= LONGEST_WAIT:
            pids = ", ".join(str(worker.pid) for worker in self._workers)
            one = len(self._workers) == 1
            workers = f"worker (process {pids}) has" if one else f"workers (processes {pids}) have"
            raise WorkerFailure(
                f"The data {workers} sent no batch for {LONGEST_WAIT:g} seconds: the disk "
                "that they read may hang, or the data set's own code; `workers` 0 reads images without workers."
            )
        raise WorkerFailure(f"Data worker {self._number(dead[0])} {_death(dead[0].exitcode or 0)}")

    def _number(self, worker: Any) -> str:
        return f"{self._workers.index(worker)} (process {worker.pid})"

    def end(self) -> None:
        """End the workers, at the latest by SIGKILL; the loader starts new ones if it is used again."""
        self._timer.close()
        self._loader._iterator = None
        if all(worker.is_alive() for worker in self._workers) and not self._shutdown:
            timer = threading.Timer(PATIENCE, self._kill)
            timer.start()
            self._shutdown_workers()
            timer.cancel()
        self._shutdown = True  # torch's way takes locks that a killed worker may hold
        self._kill()
        if self._pin_memory:
            self._pin_memory_thread_done_event.set()
        until = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()))
            if worker.is_alive():  # the kernel waits for a disk: Python would wait for the worker at its exit
                multiprocessing.process._children.discard(worker)  # type: ignore[attr-defined]

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


def _death(code: int) -> str:
    """Say how a worker ended, by the exit code that Python gives it, and what to do."""
    if code >= 0:
        return f"has ended with exit code {code}: `workers` 0 reads images without workers, and shows why."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGBUS":
        return f"was killed by SIGBUS: {_shared_memory()}"
    if name in ("SIGKILL", "SIGTERM"):
        return (
            f"was killed by {name}, as the system does where memory runs out: fewer `workers` need less, and with "
            "`workers` 0 there are none."
        )
    return f"was killed by {name}: `workers` 0 reads images without workers, and shows where."


def _explain(wrapped: ExceptionWrapper) -> Exception:
    """Return the exception of a worker as a sentence."""
    kind = wrapped.exc_type.__name__
    lines = wrapped.exc_msg.strip().splitlines()
    start = next((i for i in reversed(range(len(lines))) if lines[i].split(":")[0].endswith(kind)), len(lines) - 1)
    text = reason(Exception(" ".join(lines[start:])))
    if issubclass(wrapped.exc_type, InputError):
        return InputError(text.partition(": ")[2])
    if "shm" in text or "shared memory" in text:
        return WorkerFailure(f"A data worker could not send its batch: {_shared_memory()}")
    number = "".join(c for c in wrapped.where if c.isdigit())
    full = f"; {tempfile.gettempdir()} may be full" if "No space left" in text else ""
    failure = WorkerFailure(f"Data worker {number} failed ({text}{full}): `workers` 0 shows where.")
    failure.__cause__ = RuntimeError(wrapped.exc_msg)
    return failure


def _shared_memory() -> str:
    """Say that shared memory is too small, and what to do."""
    size = ""
    if os.path.isdir("/dev/shm"):  # noqa: PTH112
        usage = shutil.disk_usage("/dev/shm")
        size = f" (/dev/shm has {usage.total / 2**20:.0f} MB, of which {usage.free / 2**20:.0f} are free)"
    return (
        f"shared memory is too small for the batches{size}. Enlarge it (docker run --shm-size 2g), or use fewer "
        "`workers`; with `workers` 0 none is needed."
    )


def prepare_worker(worker: int) -> None:
    """Leave the first signal to the parent: `timeout` and SLURM stop the workers of a run that still saves.

    After it a SIGTERM ends the worker. A batch that cannot be sent is replaced by the reason.
    """

    def listen(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        signal.signal(number, listen)
    multiprocessing.queues.Queue._on_queue_feeder_error = _send_reason  # type: ignore[attr-defined]


def _send_reason(results: Any, error: Exception, message: Any) -> None:
    """Send the error in the place of a batch that cannot be sent; Python would print it, and the parent wait."""
    if not isinstance(message, tuple) or len(message) != 2:
        os._exit(1)
    number, content = message
    if isinstance(content, ExceptionWrapper):  # of a class that cannot be pickled
        if content.exc_type is RuntimeError:
            os._exit(1)
        content.exc_type = RuntimeError
    else:
        content = ExceptionWrapper((type(error), error, error.__traceback__), f"in data worker {_worker_number()}")
    results.put((number, content))


def _worker_number() -> int:
    """Return the number of the worker that this process is."""
    worker = get_worker_info()
    assert worker is not None
    return int(worker.id)
