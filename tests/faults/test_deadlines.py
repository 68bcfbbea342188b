"""Trainings that hang end by themselves, or after a first SIGTERM; every command ends its workers."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.methods import Method
from coterie.runs.directory import in_training
from coterie.signals import Signals
from coterie.stalls import StallTimer
from coterie.training import watchdog
from coterie.training.loop import train_recipe
from coterie.training.watchdog import Watchdog, _debugged
from tests.helpers.common import linux_only, not_on_windows, short_temporary_directory
from tests.helpers.engine import add_plain, ended, fork, outcome, recipe, same
from tests.helpers.photographs import photographs

pytestmark = not_on_windows


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    add_plain(monkeypatch)
    monkeypatch.setattr("coterie.stalls.TICK", 0.1)
    monkeypatch.setattr(watchdog, "GRACE", 1.5)


def hang_in_python() -> None:
    threading.Event().wait()


def hang_in_c() -> None:
    """Never come back to Python, so that no handler of a signal runs."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def hanging(out: Path, hang: Callable[[], None], step: int = 5) -> Callable[[], None]:
    """Return a training that hangs after a step, before it is saved."""

    def train() -> None:
        original, steps = Method.after_step, [0]

        def after_step(self: Method) -> None:
            original(self)
            steps[0] += 1
            if steps[0] == step:
                (out / "hangs").touch()
                hang()

        Method.after_step = after_step  # type: ignore[method-assign]  # in a process of its own
        train_recipe(recipe(), out)

    return train


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("hang", [hang_in_python, hang_in_c])
def test_a_first_sigterm_acts_though_the_step_does_not_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], hang: Callable[[], None]
) -> None:
    out = tmp_path / "out"
    process = fork(hanging(out, hang))
    wait_for(out / "hangs")
    os.kill(process.pid or 0, signal.SIGTERM)
    started = time.monotonic()
    assert ended(process, timeout=30) == [75]
    assert 1 < time.monotonic() - started < 10
    sentence = "coterie: stopped by SIGTERM without saving, because the step did not end within 2 seconds."
    assert sentence in capfd.readouterr().err
    assert hang.__name__ in (out / "stalled-0.txt").read_text()
    assert not in_training(out)
    assert torch.load(out / "checkpoint.pt", weights_only=True)["step"] == 4
    train_recipe(recipe(), out)
    train_recipe(recipe(), tmp_path / "whole")
    assert same(outcome(out), outcome(tmp_path / "whole"))


def test_a_save_that_has_begun_is_not_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"

    def slow(state: Any, file: Any, original: Any = torch.save) -> None:
        if state["step"] == 5:
            (out / "hangs").touch()
            time.sleep(4)
        original(state, file)

    def train() -> None:
        torch.save = slow  # in a process of its own
        train_recipe(recipe(), out)

    process = fork(train)
    wait_for(out / "hangs")
    os.kill(process.pid or 0, signal.SIGTERM)
    assert ended(process, timeout=30) == [75]
    assert torch.load(out / "checkpoint.pt", weights_only=True)["step"] == 6  # the step after it had the signal


def test_a_training_without_progress_is_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LONGEST_STEP", 2.0)
    out = tmp_path / "out"
    assert ended(fork(hanging(out, hang_in_c)), timeout=60) == [1]
    assert "coterie: No step has ended for 2 seconds, and the training is given up (" in capfd.readouterr().err
    assert "hang_in_c" in (out / "stalled-0.txt").read_text() and not in_training(out)


@pytest.mark.slow
def test_slow_is_not_stalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that compute on the CPU, debuggers and the time before the first step do not end a training."""
    ends: list[int] = []
    monkeypatch.setattr(watchdog, "end_now", lambda code, *_: ends.append(code))
    monkeypatch.setattr(watchdog, "LONGEST_STEP", 0.5)
    with Signals() as signals, Watchdog(tmp_path, signals, torch.device("cpu")) as dog:
        time.sleep(1)
        dog.progress()
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            sum(range(1000))
        assert not ends
        for _ in dog.each(range(6)):
            time.sleep(0.3)
        assert not ends
        with monkeypatch.context() as patch:
            patch.setattr(watchdog, "_debugged", lambda thread: True)
            time.sleep(1.2)
            assert not ends
            dog.progress()
        dog.finish()
        time.sleep(1.2)
        assert not ends
        dog.progress()
        time.sleep(1.2)
        assert ends and set(ends) == {1}


def test_a_debugger_is_noticed() -> None:
    assert not _debugged(threading.get_ident()) or sys.gettrace() is not None
    sys._getframe().f_trace = lambda *_: None
    assert _debugged(threading.get_ident())
    sys._getframe().f_trace = None


@linux_only
def test_time_in_which_the_process_is_stopped_does_not_count(tmp_path: Path) -> None:
    def job() -> None:
        timer = StallTimer(lambda: os._exit(7))
        timer.reset(2.0)
        (tmp_path / "runs").touch()
        time.sleep(1)

    process = fork(job)
    wait_for(tmp_path / "runs")
    os.kill(process.pid or 0, signal.SIGSTOP)
    time.sleep(3)
    os.kill(process.pid or 0, signal.SIGCONT)
    assert ended(process, timeout=30) == [0]


def test_a_signal_to_a_child_is_not_one_to_its_parent() -> None:
    calls: list[int] = []
    with Signals() as signals:
        signals.on_sigterm = lambda: calls.append(1)
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        child.start()
        time.sleep(0.2)
        child.terminate()  # the handler that it has inherited notes it
        time.sleep(0.2)
        assert not calls and signals.seen is None
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        assert calls == [1] and signals.seen == "SIGTERM"
        child.kill()
        child.join()
    assert signal.set_wakeup_fd(-1) == -1


def run(*words: object, cwd: Path, program: str = "-m coterie", seconds: int = 60) -> None:
    """Run a command, which must end within a minute, leaving no process and no directory of sockets behind."""
    with short_temporary_directory() as temporary:
        result = subprocess.run(
            [sys.executable, *program.split(), *map(str, words)],
            cwd=cwd,
            timeout=seconds,
            capture_output=True,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary), "COTERIE_TEST_MARK": str(cwd)},
        )
        assert result.returncode == 0 and "Traceback" not in result.stderr, result.stderr
        assert not [*temporary.glob("pymp-*"), *temporary.glob("coterie-*")]
    mark = f"COTERIE_TEST_MARK={cwd}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert mark not in environment.read_bytes()
        except (OSError, ProcessLookupError):
            continue


@linux_only
@pytest.mark.slow
def test_every_command_ends_with_workers(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", 12, 4)
    options = ["--data", "photos", "--data.size", 16, "--data.workers", 2, "--model", "resnet8", "--batch", 8]
    run("train", *options, "--method", "Baseline", "--epochs", 2, "--out", "run", cwd=tmp_path)
    run("evaluate", "run", cwd=tmp_path)
    run("evaluate", "run", "--data", "photos", "--data.size", 16, "--data.workers", 2, "--calibrate", cwd=tmp_path)
    run("export", "run", "-o", "student.onnx", "--calibrate", cwd=tmp_path)
    run("report", "run", "-o", "report.html", cwd=tmp_path)
    run("data", "inspect", "photos", "--size", 16, "--workers", 2, cwd=tmp_path)
    methods = ["--methods", "Baseline,PCL", "--seeds", 1, "--epochs", 1, "--peers", 2, "--processes", 1]
    run("compare", *options, *methods, "--out", "compared", cwd=tmp_path)
    run("train", *options, "--method", "Baseline", "--epochs", 1, "--seeds", 2, "--out", "seeds", cwd=tmp_path)
    teach = ["--method", "KD", "--method.teacher", "run", "--epochs", 1, "--out", "taught"]
    run("train", *options, *teach, cwd=tmp_path)
    processes = "-m torch.distributed.run --standalone --nproc-per-node 2 -m coterie"
    train = ["train", *options, "--method", "Baseline", "--epochs", 1, "--out", "shared"]
    run(*train, cwd=tmp_path, program=processes)


PROGRAM = """
import coterie
from coterie.data.folder import folder

options = {"size": 16, "workers": 2}
run = coterie.train(
    model="resnet8", data="photos", data_options=options, method="Baseline", batch=8, epochs=1, out="run"
)
run.evaluate()
data = folder("photos", size=16, workers=2)
data.load()
next(data.test_batches(4))  # and the workers go on, with batches that nobody takes
"""


@linux_only
@pytest.mark.slow
def test_a_program_ends_with_workers(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", 12, 4)
    (tmp_path / "program.py").write_text(PROGRAM)
    run(cwd=tmp_path, program="program.py")


@linux_only
@pytest.mark.slow
def test_doctor_ends_with_workers(tmp_path: Path) -> None:
    """Its own trainings take longer than a minute on a slow machine."""
    run("doctor", "--device", "cpu", cwd=tmp_path, seconds=400)
