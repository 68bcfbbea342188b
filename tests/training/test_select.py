"""`select` best keeps and deploys the weights of the best evaluation, whatever kills the training; `patience`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

import coterie
from coterie.config.recipe import Recipe
from coterie.deploy.export import export_run
from coterie.errors import InputError
from coterie.methods import Method
from coterie.models.metadata import read_metadata
from coterie.runs.checkpoints import Checkpoints
from coterie.runs.directory import RunDirectory
from coterie.runs.evaluate_run import evaluate_run
from coterie.runs.rebuild import load_student, restored
from coterie.training.loop import train_recipe
from tests.helpers.engine import add_plain, ended, fork_ranks, outcome, recipe, same, train_into

EPOCHS, STEPS = 8, 4  # of an epoch
OPTIONS: dict[str, Any] = {
    "data": {"class_path": "digits", "init_args": {"limit": 10, "val_fraction": 0.5}},
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0, "momentum": 0.9}},
    "epochs": EPOCHS,
    "seed": 1,
}


def selecting(**changes: Any) -> Recipe:
    return recipe(**{**OPTIONS, "select": "best", **changes})


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


@pytest.fixture(scope="module")
def last(plain: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, which deploys its last weights."""
    out = tmp_path_factory.mktemp("last")
    train_recipe(recipe(**OPTIONS), out)
    return out


@pytest.fixture(scope="module")
def best(plain: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("best")
    train_recipe(selecting(), out)
    return out


class Crash(BaseException):
    """Raised in place of a killed process."""


def crash_at(patch: pytest.MonkeyPatch, owner: type, function: str, calls: int) -> None:
    """Raise Crash at the end of this call of a function."""
    original, left = getattr(owner, function), [calls]

    def crashing(self: Any, *arguments: Any) -> Any:
        result = original(self, *arguments)
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        return result

    patch.setattr(owner, function, crashing)


def lowest(run: Path) -> tuple[int, str]:
    """By hand: the epoch and the weights of peer 1 with the lowest (error, NLL), the earliest of equals."""
    candidates = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["split"] == "val" and record["deployed"] == "mean1"
        for name in ("mean1", "peer1"):
            scores = record["predictors"][name]
            candidates.append((scores["error"], scores["nll"], record["epoch"], name))
    *_, epoch, name = min(candidates)
    return epoch, name


def weights_at_the_end_of(epoch: int, name: str, out: Path) -> dict[str, Tensor]:
    """Train with the last weights in mind, stop after an epoch, and read one network out of the checkpoint."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, Method, "after_step", STEPS * (epoch + 1) + 1)
        train_recipe(recipe(**OPTIONS), out)
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    assert (state["epoch"], state["step"]) == (epoch + 1, STEPS * (epoch + 1)) and "selected" not in state
    prefix = {"peer1": "net.peers.0.", "mean1": "mean.average.net.peers.0."}[name]
    return {key.removeprefix(prefix): value for key, value in state["method"].items() if key.startswith(prefix)}


def test_the_deployed_weights_are_those_of_the_best_record(best: Path, last: Path, tmp_path: Path) -> None:
    epoch, name = lowest(last)
    assert epoch < EPOCHS - 1 and name == "peer1"  # neither the last epoch nor what PCL deploys by itself
    assert same(outcome(best), outcome(last))  # the training itself is the same
    expected = weights_at_the_end_of(epoch, name, tmp_path / "stopped")
    student = safetensors.torch.load_file(best / "student.safetensors")
    assert same(student, expected) and not same(student, safetensors.torch.load_file(last / "student.safetensors"))
    assert same(dict(load_student(best).state_dict()), expected)
    _, method, epochs = restored(best)
    assert (method.deployed, epochs) == (name, epoch + 1) and same(dict(method.deploy().state_dict()), expected)
    assert restored(last)[1].deployed == "mean1" and restored(last)[2] == EPOCHS


def test_everything_says_where_they_were_selected(best: Path, tmp_path: Path) -> None:
    epoch, name = lowest(best)
    scores = json.loads((best / "metrics.jsonl").read_text().splitlines()[epoch])["predictors"][name]
    words = f"after epoch {epoch + 1} of {EPOCHS}, by the error of {name} on held-out images"
    metadata = read_metadata(best / "student.safetensors")
    assert metadata is not None and metadata.provenance["selected"] == words
    assert metadata.predictor == name and metadata.provenance["epochs"] == epoch + 1
    run = coterie.load(best)
    assert run.error == scores["error"] and f"{name} of epoch {epoch + 1} selected on held-out images" in repr(run)
    assert f"{name} (deployed)" in run._repr_html_()
    exported = export_run(best, "safetensors", None, tmp_path / "student.safetensors")
    assert exported.metadata.scores == {"split": "val", **scores}
    card = " ".join(exported.card.read_text().split())
    assert f"These are the weights {words}." in card and "The same images selected the weights" in card
    kept = json.loads((best / "evaluation.json").read_text())
    assert (kept["deployed"], kept["epochs"]) == (name, epoch + 1)
    assert kept["predictors"][name]["error"] == pytest.approx(scores["error"])
    result = evaluate_run(best)
    assert (result["selected"], result["epochs"], result["deployed"]) == (name, epoch + 1, name)
    data = restored(best)[0].data
    images, labels = next(data.test_batches(10_000))
    with torch.no_grad():
        wrong = (load_student(best)(images).argmax(1) != labels).double().mean()
    assert result["predictors"][name]["error"] == pytest.approx(100 * wrong.item())  # on the test images


def test_the_last_weights_stay_unmarked(last: Path, tmp_path: Path) -> None:
    metadata = read_metadata(last / "student.safetensors")
    assert metadata is not None and "selected" not in metadata.provenance
    card = export_run(last, "safetensors", None, tmp_path / "student.safetensors").card.read_text()
    assert (
        "selected" not in card
        and "selected" not in evaluate_run(last)
        and "selected" not in repr(coterie.load(last))
    )


KILLS = {
    "within an epoch": (Method, "after_step", 2 * STEPS + 2, 3 * STEPS + 2),
    "between record and checkpoint": (RunDirectory, "log", 2, 5),
    "after the best was saved": (RunDirectory, "save", 12, 2),
}
"""The function at whose end a process is killed, and at which call: with many checkpoints, with few."""


@pytest.mark.parametrize("moment", KILLS)
@pytest.mark.parametrize("rarely", [False, True], ids=["every step saved", "few checkpoints"])
def test_killed_again_and_again(best: Path, tmp_path: Path, moment: str, rarely: bool) -> None:
    out, kills = tmp_path / "out", 0
    owner, function, often, seldom = KILLS[moment]
    while True:
        with pytest.MonkeyPatch.context() as patch:
            if rarely:  # after the third epoch and after the sixth alone: records outnumber checkpoints
                patch.setattr(Checkpoints, "due", _every_third_epoch(out))
            crash_at(patch, owner, function, seldom if rarely else often)
            try:
                train_recipe(selecting(), out)
                break
            except Crash:
                kills += 1
                assert kills < 50
    assert kills >= (1 if rarely else 2)
    assert same(outcome(out), outcome(best))
    for name in ("student.safetensors", "checkpoint.pt"):
        files = [_content(run / name) for run in (out, best)]
        assert same(*files), name


def _content(file: Path) -> Any:
    if file.suffix == ".pt":
        return torch.load(file, weights_only=True)["selected"]
    return file.read_bytes()


def _every_third_epoch(out: Path) -> Any:
    def due(self: Checkpoints, epoch_ended: bool = False) -> bool:
        return epoch_ended and len((out / "metrics.jsonl").read_text().splitlines()) % 3 == 0

    return due


def test_patience_ends_the_training(best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    epoch, _ = lowest(best)
    train_recipe(selecting(patience=2), tmp_path)
    sentence = f"stopped after epoch {epoch + 3} of {EPOCHS}: no better held-out error in 2 evaluations"
    assert sentence in capsys.readouterr().err
    assert outcome(tmp_path)[1] == outcome(best)[1][: epoch + 3]  # with the schedule of the full length
    weights = safetensors.torch.load_file(tmp_path / "student.safetensors")
    assert same(weights, safetensors.torch.load_file(best / "student.safetensors"))
    run = coterie.load(tmp_path)
    assert run.finished and sentence in repr(run) and run.error == coterie.load(best).error
    export_run(tmp_path, "safetensors", None, tmp_path / "again.safetensors")
    assert "not finished" not in capsys.readouterr().err
    names = ("checkpoint.pt", "metrics.jsonl", "student.safetensors")
    before = {name: (tmp_path / name).read_bytes() for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Method, "after_step", lambda self: pytest.fail("it trained"))
        train_recipe(selecting(patience=2), tmp_path)
    assert {
        name: (tmp_path / name).read_bytes() for name in names
    } == before and sentence in capsys.readouterr().err


def test_killed_between_the_last_record_and_its_checkpoint(best: Path, tmp_path: Path) -> None:
    epoch, _ = lowest(best)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, RunDirectory, "log", epoch + 3)
        train_recipe(selecting(patience=2), tmp_path)
    assert not (tmp_path / "student.safetensors").exists()
    train_recipe(selecting(patience=2), tmp_path)
    assert outcome(tmp_path)[1] == outcome(best)[1][: epoch + 3]
    weights = safetensors.torch.load_file(tmp_path / "student.safetensors")
    assert same(weights, safetensors.torch.load_file(best / "student.safetensors"))


def test_an_unfinished_run_has_its_best_so_far(
    best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epoch, name = lowest(best)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        crash_at(patch, Method, "after_step", STEPS * (epoch + 3))
        train_recipe(selecting(), tmp_path / "out")
    _, method, epochs = restored(tmp_path / "out")
    assert (method.deployed, epochs) == (name, epoch + 1)
    exported = export_run(tmp_path / "out", "safetensors", None, tmp_path / "student.safetensors")
    assert exported.metadata.scores == {} and f"{epoch + 2} of {EPOCHS} epochs" in capsys.readouterr().err
    weights = safetensors.torch.load_file(tmp_path / "student.safetensors")
    assert same(weights, safetensors.torch.load_file(best / "student.safetensors"))


def test_two_processes_stop_together_and_the_first_writes(tmp_path: Path) -> None:
    options = {**OPTIONS, "select": "best", "patience": 2, "epochs": 6}
    assert ended(*fork_ranks(2, train_into(tmp_path, **options))) == [0, 0]
    epoch, name = lowest(tmp_path)
    _, method, epochs = restored(tmp_path)
    assert (method.deployed, epochs) == (name, epoch + 1)
    student = safetensors.torch.load_file(tmp_path / "student.safetensors")
    assert same(student, dict(method.deploy().state_dict()))
    assert coterie.load(tmp_path).finished


def test_a_method_without_averages_selects_among_its_records(tmp_path: Path) -> None:
    train_recipe(selecting(method="Baseline", peers=1, epochs=3), tmp_path)
    record = coterie.load(tmp_path)._read().deployed_record
    assert record["deployed"] == "peer1" and record["epoch"] == restored(tmp_path)[2] - 1


def test_what_is_refused(tmp_path: Path) -> None:
    data = {"class_path": "digits", "init_args": {"limit": 5}}
    with pytest.raises(InputError, match=r"never selected on the test images: add `val_fraction` 0\.1\."):
        train_recipe(selecting(data=data), tmp_path / "out")
    assert not (tmp_path / "out" / "config.yaml").exists()
    with pytest.raises(InputError, match="`patience` must be at least 1, not 0"):
        selecting(patience=0)
    with pytest.raises(InputError, match="give `select` best as well"):
        recipe(**OPTIONS, patience=3)
    with pytest.raises(InputError, match="select"):
        recipe(**OPTIONS, select="first")
