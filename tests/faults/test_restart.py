"""A finished run is not trained again by mistake, and `--restart` moves what there is, never deletes it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import coterie
from coterie.errors import InputError
from coterie.runs.directory import RunDirectory
from coterie.runs.reader import find_runs
from tests.helpers.common import build_once, printed, refused, train
from tests.helpers.fault_runs import content, options, refused_unchanged


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "finished", lambda folder: train(folder / "run", *options())) / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_finished_run_without_checkpoints_is_not_trained_again(finished: Path, run: Path) -> None:
    for file in run.glob("checkpoint*"):
        file.unlink()
    sentence = refused_unchanged(run)
    assert f"{run} was trained to its end, and its checkpoints are gone: nothing is trained" in sentence
    assert f"add --restart to train from the start (what is here is moved to {run}-damaged)" in sentence
    (run / "student.safetensors").unlink()  # its records say the same
    assert "its checkpoints are gone" in refused_unchanged(run)
    kept = content(run)
    printed("train", *options(), "--out", run, "--restart")
    assert (run / "student.safetensors").read_bytes() == (finished / "student.safetensors").read_bytes()
    assert content(run.with_name("run-damaged") / "1") == {k: v for k, v in kept.items() if k != ".lock"}


def test_restart_moves_aside_whatever_there_is(run: Path) -> None:
    before = {name: data for name, data in content(run).items() if name != ".lock"}
    id_before = json.loads((run / "environment.json").read_text())["run"]
    printed("train", *options(seed=3), "--out", run, "--restart")  # also for other options
    printed("train", *options(seed=3), "--out", run, "--restart")
    aside = run.with_name("run-damaged")
    assert sorted(path.name for path in aside.iterdir()) == ["1", "2"] and content(aside / "1") == before
    environment = json.loads((run / "environment.json").read_text())
    assert environment["run"] != id_before and "continued" not in environment
    assert [record["epoch"] for record in coterie.load(run).metrics] == [0, 1]
    assert find_runs([run.parent]) == [run]  # a report counts the new one only
    assert coterie.load(aside / "1").config["seed"] == 0


def test_a_restart_that_is_refused_moves_nothing(run: Path) -> None:
    refused_unchanged(run, "--restart", "--batch=0")
    refused_unchanged(run, "--restart", "--init=nowhere.pth")
    (run.parent / "mine").mkdir()
    (run.parent / "mine" / "thesis.tex").write_text("years of work")
    assert "not empty and holds no run" in refused("train", *options(), "--out", run.parent / "mine", "--restart")
    assert "--restart is for one run" in refused("train", *options(), "--out", run, "--restart", "--seeds=2")


def test_restart_from_python(run: Path, finished: Path) -> None:
    call = {"method": "Baseline", "model": "resnet8", "epochs": 2, "batch": 25, "device": "cpu"}
    shutil.rmtree(run)
    again = coterie.train(**call, data_options={"limit": 5}, out=run, restart=True)  # nothing there yet
    assert again.finished and not run.with_name("run-damaged").exists()
    for file in run.glob("checkpoint*"):
        file.unlink()
    with pytest.raises(InputError, match="its checkpoints are gone: nothing is trained.* add `restart`"):
        coterie.train(**call, data_options={"limit": 5}, out=run)
    coterie.train(**call, data_options={"limit": 5}, out=run, restart=True)
    assert (run / "student.safetensors").read_bytes() == (finished / "student.safetensors").read_bytes()


class Crash(BaseException):
    """Raised in place of a killed process."""


def test_killed_between_a_record_and_the_first_checkpoint(run: Path, finished: Path) -> None:
    """There is a record of the only epoch, but the run is not finished: it starts again."""

    def crash(*_: object) -> None:
        raise Crash

    shutil.rmtree(run)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(RunDirectory, "save", crash)
        printed("train", *options(epochs=1), "--out", run, "--checkpoint-every=1h")
    assert (run / "metrics.jsonl").read_text().count("\n") == 1 and not list(run.glob("checkpoint*"))
    printed("train", *options(epochs=1), "--out", run)
    assert coterie.load(run).finished and not list(run.glob("*damaged*"))


def test_records_of_an_unfinished_run_whose_checkpoints_were_deleted_are_kept(run: Path, finished: Path) -> None:
    for file in (*run.glob("checkpoint*"), run / "student.safetensors"):
        file.unlink()
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("epochs: 2", "epochs: 3"))
    (run / "resolved.json").unlink()
    records = (run / "metrics.jsonl").read_bytes()
    _, errors = printed("train", *options(epochs=3), "--out", run)
    assert "has no checkpoint: it is trained from the start; its records are kept in" in errors
    assert (run / "metrics.damaged1.jsonl").read_bytes() == records
    assert [record["epoch"] for record in coterie.load(run).metrics] == [0, 1, 2]
