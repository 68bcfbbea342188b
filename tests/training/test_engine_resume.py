"""A run that was killed and continued any number of times equals an undisturbed one, bit for bit."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.errors import InputError
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.engine import Crash, add_plain, crash_steps, ended, fork, outcome, recipe, same, train_into


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


@pytest.fixture(scope="module")
def whole(plain: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train without interruption; return the run."""
    out = tmp_path_factory.mktemp("whole")
    train_recipe(recipe(), out)
    return out


@pytest.fixture
def crash_after(monkeypatch: pytest.MonkeyPatch) -> Any:
    return crash_steps(monkeypatch)


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "adamw, torch schedule, two parts": {
        "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.01}},
        "schedule": {"class_path": "torch.optim.lr_scheduler.MultiStepLR", "init_args": {"milestones": [1, 2]}},
        "accumulate": 2,
        "decay_norm_and_bias": False,
    },
    "evaluated every second epoch": {"evaluate_every": 2},
    "fp16, batch-norm, clipped": {"model": "resnet8", "precision": "fp16", "clip_norm": 1.0, "batch": 40},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_after_any_step(tmp_path: Path, crash_after: Any, variant: str) -> None:
    options = VARIANTS[variant]
    train_recipe(recipe(**options), tmp_path / "whole")
    expected = outcome(tmp_path / "whole")
    steps = expected[0]["step"]
    for every in (2, 3) if variant == "paper" else (2,):  # killed again and again, after each 2nd or 3rd step
        out, kills = tmp_path / f"killed{every}", 0
        while True:
            crash_after(every)
            try:
                train_recipe(recipe(**options), out)
                break
            except Crash:
                kills += 1
        assert kills >= steps // every
        assert same(outcome(out), expected)
        assert (out / "student.safetensors").read_bytes() == (tmp_path / "whole/student.safetensors").read_bytes()


def test_unsaved_steps_are_trained_again(tmp_path: Path, whole: Path, crash_after: Any) -> None:
    """Killed in the middle of an epoch with the last checkpoint far back: epochs are logged once."""
    crash_after(8)
    with pytest.raises(Crash):
        train_recipe(recipe(checkpoint_every="1h"), tmp_path / "out")
    train_recipe(recipe(checkpoint_every="1h"), tmp_path / "out")
    assert same(outcome(tmp_path / "out"), outcome(whole))


def _kill_at_random(tmp_path: Path, kills: int) -> None:
    options = {"epochs": 12}
    assert ended(fork(train_into(tmp_path / "whole", **options))) == [0]
    out, moments = tmp_path / "out", random.Random(0)
    started = time.monotonic()
    killed, during_write, longest = 0, 0, 1.0
    while True:
        process = fork(train_into(out, **options))
        process.join(moments.uniform(0.05, longest))
        if not process.is_alive():
            assert process.exitcode == 0
            if killed >= kills:
                break
            # It got to its end before enough kills: begin once more, with less patience.
            assert same(outcome(out), outcome(tmp_path / "whole"))
            out, longest = tmp_path / f"out{killed}", longest / 2
            continue
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        killed += 1
        during_write += (out / "checkpoint.pt.part").exists()
        if (out / "metrics.jsonl").exists():
            text = (out / "metrics.jsonl").read_text()
            assert not text or text.endswith("\n")
            epochs = [record["epoch"] for record in RunDirectory(out).metrics()]
            assert epochs == list(range(len(epochs)))
        if killed >= kills:
            longest = 60.0
    assert same(outcome(out), outcome(tmp_path / "whole"))
    print(
        f"{killed} kills in {time.monotonic() - started:.0f} s, {during_write} of them during a checkpoint write"
    )


def test_kill_9_at_10_random_moments(tmp_path: Path) -> None:
    _kill_at_random(tmp_path, 10)


@pytest.mark.slow
def test_kill_9_at_200_random_moments(tmp_path: Path) -> None:
    _kill_at_random(tmp_path, 200)


@pytest.mark.parametrize("moment", ["half written", "not synced", "between the renames", "not listed"])
def test_kill_9_during_a_checkpoint_write(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    saves = [0]

    def die(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def save(state: Any, file: Any, original: Any = torch.save) -> None:
        original(state, file)
        saves[0] += 1
        if saves[0] < 5:
            return
        if moment == "half written":
            file.flush()
            os.truncate(file.name, Path(file.name).stat().st_size // 2)
            die()
        syncs, replaces = [0], [0]

        def fsync(descriptor: int, original: Any = os.fsync) -> None:
            syncs[0] += 1
            if syncs[0] == {"not synced": 1, "not listed": 2}.get(moment):
                die()
            original(descriptor)

        def replace(self: Path, target: Path, original: Any = Path.replace) -> None:
            replaces[0] += 1
            if replaces[0] == 2 and moment == "between the renames":
                die()
            original(self, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "replace", replace)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save)
        assert ended(fork(train_into(tmp_path / "out"))) == [-signal.SIGKILL]
    train_recipe(recipe(), tmp_path / "out")
    assert same(outcome(tmp_path / "out"), outcome(whole))


def test_a_file_system_without_locks_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", no_locks)
    train_recipe(recipe(epochs=1), tmp_path / "out")
    assert "cannot be locked (No locks available)" in capsys.readouterr().err


def test_two_writers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = fork(train_into(out, epochs=3000))
    while not (out / "checkpoint.pt").exists():
        time.sleep(0.05)
    with pytest.raises(InputError, match="Another process is training"):
        train_recipe(recipe(epochs=3000), out)
    first.kill()
    first.join()
    second = fork(train_into(out, epochs=3000))  # the lock went with the process
    second.join(1.0)
    assert second.is_alive()
    second.terminate()
    assert ended(second) == [75]
