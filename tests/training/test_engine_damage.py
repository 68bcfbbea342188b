"""What happens to a run whose disk is full, whose files are damaged or whose options have changed."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.errors import Failure, InputError
from coterie.methods import Method
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
        with pytest.raises(InputError, match=r"checkpoint\.pt is damaged .* checkpoint\.previous\.pt is damaged"):
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
    "damaged": ("checkpoint.pt", lambda old: old[: len(old) // 2], "no checkpoint that can be used: .* damaged"),
    "another network's": (
        "checkpoint.pt",
        None,
        r"does not fit this code's network or optimiser \(.*early.weight",
    ),
    "records lost": ("metrics.jsonl", lambda old: old[:-1], "line 1 of metrics.jsonl is cut off, which .* needs"),
    "broken data": ("data.json", lambda old: old[:-9], "data.json cannot be read .*: put a copy .* or remove it"),
    "odd values": ("resolved.json", lambda old: b"[]", "resolved.json is not a table of names"),
    "broken options": ("config.yaml", lambda old: b"{", r"config.yaml cannot be read .*\): put a copy"),
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
