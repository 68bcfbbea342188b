"""Damage in metrics.jsonl is noticed and named by line; files that only inform do not stop a training."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import coterie
from coterie.deploy.export import export_run
from coterie.errors import InputError
from coterie.experiments.launch_local import _unreadable
from coterie.runs.directory import RunDirectory
from coterie.runs.reader import read_run
from coterie.training.loop import train_recipe
from tests.helpers.common import printed
from tests.helpers.engine import add_plain, outcome, recipe, same
from tests.helpers.fault_runs import content


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


@pytest.fixture(scope="module")
def whole(plain: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three records; its newest checkpoint needs them all, the previous one the first two."""
    out = tmp_path_factory.mktemp("whole")
    train_recipe(recipe(), out)
    return out


@pytest.fixture(scope="module")
def foreign(plain: None, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The records of another run with the same options."""
    out = tmp_path_factory.mktemp("foreign")
    train_recipe(recipe(), out)
    return (out / "metrics.jsonl").read_bytes()


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def flip(line: bytes) -> bytes:
    """Change a digit of the first error, which leaves the line a valid record."""
    place = line.index(b'"error": ') + len(b'"error": ')
    return line[:place] + (b"1" if line[place : place + 1] != b"1" else b"2") + line[place + 1 :]


Lines = list[bytes]
LATE: dict[str, tuple[Callable[[Lines], Lines], str]] = {  # damage that leaves the first two lines as they are
    "cut inside a line": (lambda old: [*old[:2], old[2][:300]], "line 3 of metrics.jsonl is cut off"),
    "without its line feed": (lambda old: [*old[:2], old[2][:-1]], "line 3 of metrics.jsonl is cut off"),
    "a digit flipped": (lambda old: [*old[:2], flip(old[2])], "line 3 of metrics.jsonl is damaged"),
    "a byte that is no text": (lambda old: [*old[:2], b"\xff" + old[2]], "line 3 of metrics.jsonl is damaged"),
    "the last line removed": (lambda old: old[:2], "metrics.jsonl ends after 2 records"),
    "a line written twice": (
        lambda old: [*old[:2], old[1], old[2]],
        "line 3 of metrics.jsonl is not the record of",
    ),
}
EARLY: dict[str, tuple[Callable[[Lines], Lines], str]] = {  # damage to what both checkpoints need
    "cut inside a line": (lambda old: [old[0][:300]], "line 1 of metrics.jsonl is cut off"),
    "a digit flipped": (lambda old: [flip(old[0]), *old[1:]], "line 1 of metrics.jsonl is damaged"),
    "a line removed": (lambda old: [old[0], old[2]], "line 2 of metrics.jsonl is not the record of epoch 2"),
    "lines swapped": (
        lambda old: [old[1], old[0], old[2]],
        "line 1 of metrics.jsonl is not the record of epoch 1",
    ),
    "emptied": (lambda old: [], "metrics.jsonl ends after 0 records"),
    "a record without its digest": (
        lambda old: [old[0][: old[0].rindex(b', "digest"')] + b"}\n", *old[1:]],
        "line 1 of metrics.jsonl is damaged",
    ),
}


def damage(run: Path, change: Callable[[Lines], Lines]) -> None:
    file = run / "metrics.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def test_a_line_has_a_digest_of_its_record(run: Path) -> None:
    """By hand: the first 16 digits of the SHA-256 of the line without its digest."""
    for line in (run / "metrics.jsonl").read_text().splitlines():
        text, digest = line[: line.rindex(', "digest"')] + "}", json.loads(line)["digest"]
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    assert state["records"] == hashlib.sha256((run / "metrics.jsonl").read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", LATE)
def test_lost_records_of_the_last_epoch_are_trained_again(
    run: Path, whole: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, sentence = LATE[kind]
    damage(run, change)
    newest = (run / "checkpoint.pt").read_bytes()
    capsys.readouterr()
    train_recipe(recipe(), run)
    errors = capsys.readouterr().err
    assert sentence in errors and "checkpoint.previous.pt, of step 12, is used instead" in errors
    assert same(outcome(run), outcome(whole))
    assert (run / "student.safetensors").read_bytes() == (whole / "student.safetensors").read_bytes()
    assert (run / "checkpoint.damaged1.pt").read_bytes() == newest


@pytest.mark.parametrize("kind", EARLY)
def test_lost_records_of_earlier_epochs_are_named(run: Path, whole: Path, kind: str) -> None:
    change, sentence = EARLY[kind]
    damage(run, change)
    before = content(run)
    with pytest.raises(InputError) as refusal:
        train_recipe(recipe(), run)
    assert f"{sentence}, which checkpoint.pt needs" in str(refusal.value)
    assert f"{sentence}, which checkpoint.previous.pt needs" in str(refusal.value)
    assert f"add `restart` to train from the start (what is here is moved to {run}-damaged)" in str(refusal.value)
    assert content(run) == before
    assert _unreadable(run, "partial") == "no checkpoint of it can be used"  # `coterie reproduce` moves it away
    train_recipe(recipe(), run, restart=True)
    assert same(outcome(run), outcome(whole))


def test_records_that_are_gone_are_named(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match="metrics.jsonl ends after 0 records, which checkpoint.pt needs"):
        train_recipe(recipe(), run)


def test_records_of_another_run_are_named(run: Path, foreign: bytes) -> None:
    own = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(foreign)
    before = content(run)
    with pytest.raises(
        InputError, match="line 1 of metrics.jsonl is a record of another run, which checkpoint.pt"
    ):
        train_recipe(recipe(), run)
    assert content(run) == before
    result = read_run(run)
    assert result.records == [] and "line 1 of metrics.jsonl and 2 more are of another run" in result.problems
    lines = own.splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*lines[:2], foreign.splitlines(keepends=True)[2]]))
    assert "line 3 of metrics.jsonl is of another run" in read_run(run).problems
    assert [record["epoch"] for record in coterie.load(run).metrics] == [0, 1]


def test_a_file_that_is_changed_during_a_training_is_made_good(tmp_path: Path, whole: Path) -> None:
    """Each record is written with all before it, as they were; a checkpoint vouches for these."""
    original = RunDirectory.save

    def save(self: RunDirectory, state: dict[str, object]) -> None:
        original(self, state)
        if len(self.records.splitlines()) < 3:
            damage(tmp_path / "run", lambda old: [flip(line) for line in old])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "save", save)
        train_recipe(recipe(), tmp_path / "run")
    assert same(outcome(tmp_path / "run"), outcome(whole)) and read_run(tmp_path / "run").problems == []


def test_a_reader_leaves_out_what_is_damaged_and_says_so(run: Path) -> None:
    damage(run, lambda old: [old[0], flip(old[1]), old[2]])
    result = read_run(run)
    assert result.problems == ["line 2 of metrics.jsonl is damaged"]
    assert [record["epoch"] for record in result.records] == [0, 2]
    with pytest.raises(
        InputError, match=r"In .* line 2 of metrics.jsonl is damaged: its `coterie train` continues"
    ):
        RunDirectory(run).metrics()
    with pytest.raises(InputError, match="line 2 of metrics.jsonl is damaged"):
        export_run(run, "safetensors", None, run / "x.safetensors")  # its card would have the scores
    text, _ = printed("report", run, "--text")
    assert "line 2 of metrics.jsonl is damaged" in text


def test_a_reader_misses_a_record(run: Path) -> None:
    damage(run, lambda old: [old[0], old[2]])
    assert read_run(run).problems == ["metrics.jsonl has no record of epoch 2"]


def test_spaces_are_no_damage(run: Path) -> None:
    """Another program may have written the same records in its own way."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert read_run(run).problems == [] and len(coterie.load(run).metrics) == 3


GARBAGE = {"cut off": b'{"a": ', "a list": b"[]", "no text": b"\xff\xfe\x00", "empty": b"", "deep": b"[" * 100_000}


@pytest.mark.parametrize("name", ["environment.json", "description.json"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_file_that_only_informs_is_written_anew(
    run: Path, whole: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).write_bytes(GARBAGE[kind])
    train_recipe(recipe(), run)
    kept = name.replace(".json", ".damaged1.json")
    assert f"{name} cannot be read: it is kept as {kept} and written anew" in capsys.readouterr().err
    assert (run / kept).read_bytes() == GARBAGE[kind]
    old, new = (json.loads((path / name).read_text()) for path in (whole, run))
    assert old.keys() == new.keys() and old.get("run") == new.get("run")  # the records have it too
    assert same(outcome(run), outcome(whole))


@pytest.mark.parametrize("name", ["data.json", "resolved.json"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_file_that_is_compared_is_refused_and_can_be_removed(
    run: Path, whole: Path, name: str, kind: str
) -> None:
    (run / name).write_bytes(GARBAGE[kind])
    before = content(run)
    with pytest.raises(
        InputError, match=rf"{name} .*: put a copy in its place, or remove it, and the `coterie train"
    ):
        train_recipe(recipe(), run)
    assert content(run) == before
    (run / name).unlink()
    train_recipe(recipe(), run)
    assert (run / name).read_bytes() == (whole / name).read_bytes() and same(outcome(run), outcome(whole))


def test_odd_values_in_files_that_can_be_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "continued": 3}))
    train_recipe(recipe(), run)
    assert len(json.loads((run / "environment.json").read_text())["continued"]) == 1
    (run / "data.json").write_text('{"classes": 3}')
    with pytest.raises(InputError, match="data.json does not name classes and shape: put a copy"):
        coterie.load(run).student()
