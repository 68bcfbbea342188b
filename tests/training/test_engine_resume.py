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

from coterie.errors import Failure, InputError
from coterie.methods import Method
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.engine import add_plain, ended, fork, outcome, recipe, same, train_into


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


class Crash(BaseException):
    """Raised in place of a killed process."""


@pytest.fixture
def crash_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Raise Crash after n optimiser steps, before anything of the nth is saved."""
    original, left = Method.after_step, [0]

    def after_step(self: Method) -> None:
        original(self)
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    monkeypatch.setattr(Method, "after_step", after_step)
    yield lambda steps: left.__setitem__(0, steps)


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


def test_kill_9_at_20_random_moments(tmp_path: Path) -> None:
    _kill_at_random(tmp_path, 20)


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


@pytest.mark.parametrize("damage", ["truncated", "bit-flipped", "empty", "both"])
def test_damaged_checkpoint(
    tmp_path: Path, whole: Path, crash_after: Any, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    out = tmp_path / "out"
    crash_after(5)
    with pytest.raises(Crash):
        train_recipe(recipe(), out)
    files = [out / "checkpoint.pt", *([out / "checkpoint.previous.pt"] if damage == "both" else [])]
    for file in files:
        content = bytearray(file.read_bytes())
        if damage == "bit-flipped":
            content[len(content) // 2] ^= 4
        file.write_bytes(content[: {"truncated": len(content) // 3, "empty": 0}.get(damage, len(content))])
    if damage == "both":
        for file in files:
            file.write_bytes(file.read_bytes()[:1000])
        with pytest.raises(InputError, match=r"checkpoint\.pt and checkpoint\.previous\.pt .* cannot be read"):
            train_recipe(recipe(), out)
        assert all(file.stat().st_size == 1000 for file in files)
        return
    capfd.readouterr()
    train_recipe(recipe(), out)
    assert "warning" in (stderr := capfd.readouterr().err) and "checkpoint.pt is damaged" in stderr
    assert same(outcome(out), outcome(whole))


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient can overflow though the loss was fine: the next loss would tell, after a save."""
    original = Method.after_step

    def after_step(self: Method) -> None:
        original(self)
        if self.mean is not None and self.mean.step == 4:
            with torch.no_grad():
                next(self.parameters())[0] = float("inf")

    with monkeypatch.context() as patch:
        patch.setattr(Method, "after_step", after_step)
        with pytest.raises(Failure, match="After step 4 weights are no longer finite"):
            train_recipe(recipe(), tmp_path / "out")
    train_recipe(recipe(), tmp_path / "out")
    assert same(outcome(tmp_path / "out"), outcome(whole))


def test_no_room(tmp_path: Path, whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The kernel refuses to write files past a size: an error in one sentence, the last checkpoint intact."""
    import resource

    out = tmp_path / "out"

    def limited() -> None:
        original, saves = torch.save, [0]

        def save(state: Any, file: Any) -> None:
            saves[0] += 1
            if saves[0] == 5:
                resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            original(state, file)

        torch.save = save  # in a process of its own
        train_recipe(recipe(), out)

    assert ended(fork(limited)) == [1]
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("coterie:")]
    assert len(errors) == 1 and "checkpoint.pt could not be written (File too large)" in errors[0], errors
    assert not list(out.glob("*.part"))
    assert torch.load(out / "checkpoint.pt", weights_only=True)["step"] == 4
    train_recipe(recipe(), out)
    assert same(outcome(out), outcome(whole))


def test_failing_fsync(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that only says so at fsync, as network file systems do, in whichever file it happens."""
    import errno

    real = os.fsync
    for nth in (1, 8, 20, 31):
        calls = [0]

        def fsync(descriptor: int, nth: int = nth, calls: list[int] = calls) -> None:
            calls[0] += 1
            if calls[0] == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        out = tmp_path / f"out{nth}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            with pytest.raises(Failure, match="No space left on device"):
                train_recipe(recipe(), out)
        train_recipe(recipe(), out)
        assert same(outcome(out), outcome(whole))


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


def test_changed_configuration(tmp_path: Path, whole: Path, crash_after: Any) -> None:
    out = tmp_path / "out"
    crash_after(4)
    with pytest.raises(Crash):
        train_recipe(recipe(), out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(InputError, match=r"seed was 0, is 1") as refusal:
        train_recipe(recipe(seed=1, precision="bf16"), out)
    assert "precision was 32, is bf16" in str(refusal.value)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    # What only says how to compute it may change.
    train_recipe(recipe(device="cpu", checkpoint_every="1h", track="tensorboard"), out)
    assert same(outcome(out), outcome(whole))


REFUSED: dict[str, tuple[str, Any, str]] = {  # the file, what becomes of its bytes, the refusal
    "damaged": ("checkpoint.pt", lambda old: old[: len(old) // 2], "checkpoint.pt in .* cannot be read"),
    "another network's": ("checkpoint.pt", None, "does not fit this code's network or optimiser: .*early.weight"),
    "records lost": ("metrics.jsonl", lambda old: old[:-1], "metrics.jsonl is shorter than when"),
    "broken environment": (
        "environment.json",
        lambda old: old[:-9],
        "environment.json cannot be read .*: restore",
    ),
    "odd environment": ("environment.json", lambda old: b"[]", "environment.json is not a table of names"),
    "broken data": ("data.json", lambda old: old[:-9], "data.json cannot be read .*: restore or remove it"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_not_touched(tmp_path: Path, crash_after: Any, kind: str) -> None:
    """With options that may change, which a run that goes on writes into its config.yaml."""
    name, damage, sentence = REFUSED[kind]
    out = tmp_path / "out"
    crash_after(6)
    with pytest.raises(Crash):
        train_recipe(recipe(), out)
    (out / "checkpoint.previous.pt").unlink()
    if damage is None:
        state = torch.load(out / name, weights_only=True)
        del state["method"]["net.peers.0.early.weight"]
        torch.save(state, out / name)
    else:
        (out / name).write_bytes(damage((out / name).read_bytes()))
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b"" if kind == "records lost" else b'{"logged after": "the checkpoint"}\n')
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(InputError, match=sentence):
        train_recipe(recipe(device="cpu", checkpoint_every="1h", track="tensorboard"), out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


def test_interrupted_before_anything_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while the directory was being made: not mistaken for somebody's own files."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.kill(os.getpid(), signal.SIGKILL))
        assert ended(fork(train_into(tmp_path / "out"))) == [-signal.SIGKILL]
    assert not (tmp_path / "out/config.yaml").exists()
    train_recipe(recipe(epochs=1), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not empty"):
        train_recipe(recipe(), tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
