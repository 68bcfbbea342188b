"""Data workers that are killed, crash, hang or cannot send: one sentence, the run saved, no process left."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.config.options import from_options
from coterie.data import worker_sockets, workers
from coterie.data.folder import folder
from coterie.data.worker_sockets import LOCK, PREFIX, remove_abandoned
from coterie.data.wrapped import dataset
from coterie.errors import Failure, InputError
from coterie.methods import Method
from coterie.runs.directory import in_training
from coterie.training.loop import train_recipe
from tests.helpers.common import build_once, linux_only, short_temporary_directory
from tests.helpers.device import OPTION
from tests.helpers.engine import fork, outcome, same
from tests.helpers.photographs import photographs

pytestmark = linux_only

BATCHES = [np.arange(start, start + 4) for start in range(0, 40, 4)]
PLACES = [*Path("/dev/shm").glob("torch_*")]


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "photos", lambda root: photographs(root / "set", 20, 4)) / "set"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for less long than a user does; afterwards no worker is left but those of tests before."""
    before = multiprocessing.active_children()
    monkeypatch.setattr(workers, "CHECK_EVERY", 0.2)
    monkeypatch.setattr(workers, "PATIENCE", 1.0)
    monkeypatch.setattr("coterie.stalls.TICK", 0.2)
    yield
    assert not [child for child in multiprocessing.active_children() if child not in before]
    assert not [file for file in Path("/dev/shm").glob("torch_*") if file not in PLACES]


def streaming(data: Any) -> Iterator[Any]:
    data.load()
    return iter(data.stream(BATCHES, 1, 0, 0))


def processes(data: Any) -> list[Any]:
    return list(data._loader._iterator._workers)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (signal.SIGKILL, "was killed by SIGKILL, as the system does where memory runs out: fewer `workers`"),
        (signal.SIGSEGV, "was killed by SIGSEGV: `workers` 0 reads images without workers, and shows where"),
        (signal.SIGBUS, r"SIGBUS: shared memory is too small for the batches \(/dev/shm has \d+ MB"),
    ],
)
def test_a_killed_worker_is_named(photos: Path, number: int, sentence: str) -> None:
    data = folder(str(photos), size=16, workers=2)
    stream = streaming(data)
    next(stream)
    worker = processes(data)[1]
    os.kill(worker.pid, number)
    worker.join()
    started = time.monotonic()
    with pytest.raises(Failure, match=rf"^Data worker 1 \(process {worker.pid}\) .*{sentence}"):
        list(stream)
    assert time.monotonic() - started < 10
    # Whoever catches it may go on, with new workers.
    assert len(list(data.stream(BATCHES, 1, 0, 0))) == len(BATCHES)
    data._loader.end()


def test_a_worker_that_dies_between_two_epochs(photos: Path) -> None:
    data = folder(str(photos), size=16, workers=2)
    assert len(list(streaming(data))) == len(BATCHES)
    os.kill(processes(data)[0].pid, signal.SIGKILL)
    with pytest.raises(Failure, match="Data worker 0 .* was killed by SIGKILL"):
        next(data.test_batches(4))


@pytest.mark.parametrize("stopped", [1, 2])
def test_a_worker_that_hangs(photos: Path, monkeypatch: pytest.MonkeyPatch, stopped: int) -> None:
    """A stopped process does not even hand over what it has sent, nor does it obey SIGTERM."""
    monkeypatch.setattr(workers, "LONGEST_WAIT", 2.0)
    data = folder(str(photos), size=16, workers=2)
    stream = streaming(data)
    next(stream)
    pids = [worker.pid for worker in processes(data)]
    for pid in pids[:stopped]:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Failure, match=rf"workers \(processes {pids[0]}, {pids[1]}\) have sent no batch for 2 s"):
        list(stream)


class Bad:
    """A data set whose code fails in a worker in one of several ways."""

    def __init__(self, train: bool = True, way: str = "") -> None:
        self.way, self.parent = way, os.getpid()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if os.getpid() != self.parent and index == 9:
            if self.way == "exit":
                os._exit(3)
            if self.way == "sleep":
                time.sleep(3600)
        return torch.full((3, 16, 16), index, dtype=torch.uint8), index % 2


class Raising(dataset):
    """Fails outside of what may fail for a single image."""

    def read_batch(self, request: Any) -> Any:
        class Local(Exception):
            pass

        way = self.options["way"]
        if 9 in request.images:
            if way == "value":
                raise ValueError("two\nlines")
            if way == "input":
                raise InputError("The set is empty: fill it.")
            if way == "local class":
                raise Local("of a class that no other process knows")
        batch = super().read_batch(request)
        if 9 in request.images and way == "not sent":
            batch.unreadable = {"lock": threading.Lock()}  # type: ignore[dict-item]
        return batch


@pytest.mark.parametrize(
    ("way", "kind", "sentence"),
    [
        ("value", Failure, r"^Data worker 0 failed \(ValueError: two lines\): `workers` 0 shows where\.$"),
        ("input", InputError, r"^The set is empty: fill it\.$"),
        ("local class", Failure, r"^Data worker 0 failed \(.*of a class that no other process knows\)"),
        ("not sent", Failure, r"^Data worker 0 failed \(TypeError: cannot pickle '_thread.lock' object\)"),
        ("exit", Failure, r"^Data worker 0 \(process \d+\) has ended with exit code 3: `workers` 0"),
        ("sleep", Failure, r"^The data workers \(processes \d+, \d+\) have sent no batch for 2 seconds"),
    ],
)
def test_code_that_fails_in_a_worker(
    monkeypatch: pytest.MonkeyPatch, way: str, kind: type[Exception], sentence: str
) -> None:
    monkeypatch.setattr(workers, "LONGEST_WAIT", 2.0)
    data = Raising(f"{__name__}.Bad", options={"way": way}, workers=2)
    with pytest.raises(kind, match=sentence):
        list(streaming(data))


def recipe(photos: Path, workers: int, **changes: Any) -> Any:
    data = {"class_path": "folder", "init_args": {"root": str(photos), "size": 16, "workers": workers}}
    options = {"model": "resnet8", "method": "Baseline", "data": data, "epochs": 3, "batch": 10, **OPTION}
    return from_options({**options, "checkpoint_every": "1h", **changes})


SCHEDULE = {"class_path": "torch.optim.lr_scheduler.MultiStepLR", "init_args": {"milestones": [1, 2]}}


@pytest.mark.parametrize(
    ("step", "changes", "saved"),
    [
        (2, {}, True),
        (4, {"schedule": SCHEDULE}, True),  # the last of an epoch: its evaluation has no images
        (6, {"accumulate": 2}, None),  # between two parts of a batch or before the first: as it happens
    ],
)
def test_a_run_whose_worker_is_killed_goes_on_to_the_same_bits(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, step: int, changes: dict[str, Any], saved: Any
) -> None:
    train_recipe(recipe(photos, 0, **changes), tmp_path / "whole")
    steps, original = [0], Method.after_step

    def after_step(self: Method) -> None:
        original(self)
        steps[0] += 1
        if steps[0] == step:
            for worker in multiprocessing.active_children():
                os.kill(worker.pid or 0, signal.SIGKILL)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Method, "after_step", after_step)
        with pytest.raises(Failure, match=r"Data worker \d .* was killed by SIGKILL") as failure:
            train_recipe(recipe(photos, 2, **changes), out)
    numbers = re.findall(
        r"The run was saved after step (\d+); the same command continues it\.$", str(failure.value)
    )
    if numbers:
        state = torch.load(out / "checkpoint.pt", weights_only=True)
        assert state["step"] == int(numbers[0]) >= step
    else:
        assert not saved and "The last checkpoint is kept; the same command" in str(failure.value)
    train_recipe(recipe(photos, 0, **changes), out)  # the lock is free
    assert same(outcome(out), outcome(tmp_path / "whole"))


def test_killed_from_outside_while_a_command_trains(tmp_path: Path, photos: Path) -> None:
    """Exit code 1 within 30 seconds, one sentence, no traceback; nothing stays in the temporary directory."""
    words = ["--data", photos, "--data.size", 16, "--data.workers", 2, "--model", "resnet8", "--batch", 10]
    words += ["--method", "Baseline", "--epochs", 100000, "--out", tmp_path / "out"]
    metrics = tmp_path / "out/metrics.jsonl"
    with short_temporary_directory() as temporary:
        process = subprocess.Popen(
            [sys.executable, "-m", "coterie", "train", *map(str, words)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.02)
        assert [path.name.startswith(PREFIX) for path in temporary.iterdir()] == [True]
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        os.kill(int(first), signal.SIGKILL)
        _, stderr = process.communicate(timeout=30)
        assert not list(temporary.iterdir())
    assert process.returncode == 1 and "Traceback" not in stderr
    sentences = [line for line in stderr.splitlines() if line.startswith("coterie: Data worker")]
    assert len(sentences) == 1 and "fewer --data.workers need less" in sentences[0], stderr
    assert not in_training(tmp_path / "out")


def is_running(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_workers_end_after_their_killed_parent(tmp_path: Path, photos: Path) -> None:
    def read() -> None:
        data = folder(str(photos), size=16, workers=2)
        next(streaming(data))
        (tmp_path / "part").write_text(" ".join(str(worker.pid) for worker in processes(data)))
        (tmp_path / "part").rename(tmp_path / "pids")
        time.sleep(60)

    parent = fork(read)
    until = time.monotonic() + 60
    while not (tmp_path / "pids").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    parent.kill()
    parent.join()
    until = time.monotonic() + 20
    for pid in (tmp_path / "pids").read_text().split():
        while is_running(pid):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_directories_of_killed_processes_are_removed_by_the_next(tmp_path: Path) -> None:
    names = ("abandoned", "new", "in use")
    for name in names:
        (tmp_path / f"{PREFIX}{name}").mkdir()
        (tmp_path / f"{PREFIX}{name}" / "listener-x").touch()
        if name != "new":
            os.utime(tmp_path / f"{PREFIX}{name}", (0, 0))
    (tmp_path / "precious").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "precious")
    other = tmp_path / f"{PREFIX}in use"
    script = (
        f"from coterie.files import lock_file; lock = lock_file({str(other / LOCK)!r}); lock.acquire(); print(1)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-u", "-c", f"{script}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdout.readline()
    os.utime(other, (0, 0))
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{PREFIX}{n}" for n in ("new", "in use", "link")} | {
        "precious"
    }
    assert not list((tmp_path / "precious").iterdir())
    holder.communicate(b"\n")
    os.utime(other, (0, 0))
    remove_abandoned(tmp_path)
    assert not other.exists() and worker_sockets.OLD == 3600


def test_a_temporary_directory_with_a_long_path(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has at most 107 bytes."""
    temporary = tmp_path / ("x" * 100)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.setitem(settings, "tempdir", None)
    data = folder(str(photos), size=16, workers=2)
    assert len(list(streaming(data))) == len(BATCHES)
    data._loader.end()
    assert Path(settings["tempdir"]).parent == Path("/tmp")
