"""A checkpoint belongs to its run: another run's, or one that no training could have saved, is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import coterie
from coterie.errors import InputError
from tests.helpers.common import build_once, printed, refused, train
from tests.helpers.fault_runs import content, options, refused_unchanged

OTHERS: dict[str, tuple[dict[str, Any], str]] = {  # what another run was trained with, and how that is said
    "seed": ({"seed": 1}, "seed was 1, is 0"),
    "learning rate": ({"optimizer.lr": 0.05}, "optimizer.lr was 0.05, is 0.1"),
    "data": ({"data.limit": 6}, "data.limit was 6, is 5"),
    "method": ({"method": "DML", "peers": 2}, "method was coterie.DML, is coterie.Baseline"),
    "nothing": ({}, "its run is "),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run `own`, and one that differs in each of OTHERS."""

    def build(folder: Path) -> None:
        train(folder / "own", *options())
        for name, (changes, _) in OTHERS.items():
            train(folder / name, *options(**changes))

    return build_once(tmp_path_factory, "identity", build)


@pytest.fixture
def own(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "own", tmp_path / "own"))


def edit_state(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    state = torch.load(file, weights_only=True)
    change(state)
    torch.save(state, file)


def test_checkpoint_records_and_environment_name_the_run(runs: Path) -> None:
    ids = set()
    for name in ("own", *OTHERS):
        run = json.loads((runs / name / "environment.json").read_text())["run"]
        assert len(run) == 32 and int(run, 16) >= 0
        for file in ("checkpoint.pt", "checkpoint.previous.pt"):
            assert torch.load(runs / name / file, weights_only=True)["run"] == run
        lines = (runs / name / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == 2 and {json.loads(line)["run"] for line in lines} == {run}
        ids.add(run)
    assert len(ids) == len(OTHERS) + 1
    assert not {"run", "digest"} & coterie.load(runs / "own").metrics[0].keys()


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_run_is_refused_by_name(runs: Path, own: Path, other: str) -> None:
    newest, previous = own / "checkpoint.pt", own / "checkpoint.previous.pt"
    shutil.copy(runs / other / "checkpoint.pt", newest)
    sentence = refused_unchanged(own)
    assert f"{newest} belongs to another run ({OTHERS[other][1]}" in sentence
    assert sentence.endswith("move it away, and the same command goes on from checkpoint.previous.pt.")
    shutil.copy(runs / other / "checkpoint.pt", previous)
    newest.unlink()
    sentence = refused_unchanged(own)
    assert f"{previous} belongs to another run ({OTHERS[other][1]}" in sentence
    assert f"add --restart to train from the start (what is here is moved to {own}-damaged)" in sentence


def test_what_the_refusal_says_works(runs: Path, own: Path) -> None:
    shutil.copy(runs / "nothing" / "checkpoint.pt", own)
    refused_unchanged(own)
    (own / "checkpoint.pt").unlink()
    printed("train", *options(), "--out", own)
    assert (own / "student.safetensors").read_bytes() == (runs / "own" / "student.safetensors").read_bytes()
    assert torch.load(own / "checkpoint.pt", weights_only=True)["step"] == 4


def test_a_configuration_that_was_edited_is_compared_with_the_checkpoint(own: Path) -> None:
    config = yaml.safe_load((own / "config.yaml").read_text())
    (own / "config.yaml").write_text(yaml.safe_dump({**config, "seed": 7}))
    before = content(own)
    sentence = refused("train", *options(seed=7), "--out", own)
    assert "checkpoint.pt belongs to another run (seed was 0, is 7)" in sentence and content(own) == before
    (own / "config.yaml").unlink()  # the checkpoint has it too
    assert "seed was 0, is 7" in refused("train", *options(seed=7), "--out", own)
    printed("train", *options(), "--out", own)
    assert yaml.safe_load((own / "config.yaml").read_text()) == config


def test_options_in_the_words_of_an_earlier_version_are_the_same_options(own: Path) -> None:
    """config.yaml and checkpoint have them alike; what config.yaml says today is compared with the command."""
    config = yaml.safe_load((own / "config.yaml").read_text())
    config["method"]["class_path"] = "coterie.methods.baseline.Baseline"
    (own / "config.yaml").write_text(yaml.safe_dump(config))
    for file in own.glob("checkpoint*"):
        edit_state(file, lambda state: state.update(config=config))
    before = coterie.load(own).metrics
    printed("train", *options(), "--out", own)
    assert coterie.load(own).metrics == before and not list(own.glob("*damaged*"))


def test_networks_of_another_run_are_not_scored(runs: Path, own: Path) -> None:
    shutil.copy(runs / "nothing" / "checkpoint.pt", own)
    assert "checkpoint.pt belongs to another run (its run is " in refused("evaluate", own)
    with pytest.raises(InputError, match="belongs to another run"):
        coterie.load(own).predictors()


def test_a_run_of_an_earlier_version_goes_on_and_gets_an_id(runs: Path, own: Path) -> None:
    environment = json.loads((own / "environment.json").read_text())
    del environment["run"]
    (own / "environment.json").write_text(json.dumps(environment))
    records = [json.loads(line) for line in (own / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({k: v for k, v in r.items() if k not in ("run", "digest")}) + "\n" for r in records]
    (own / "metrics.jsonl").write_text(lines[0])  # killed within the second epoch
    (own / "checkpoint.pt").unlink()

    def older(state: dict[str, Any]) -> None:
        del state["run"], state["records"], state["config"]["patience"]
        state["metrics"] = len(lines[0])

    edit_state(own / "checkpoint.previous.pt", older)
    (own / "student.safetensors").unlink()
    printed("train", *options(), "--out", own)
    assert (own / "student.safetensors").read_bytes() == (runs / "own" / "student.safetensors").read_bytes()
    first, second = (json.loads(line) for line in (own / "metrics.jsonl").read_text().splitlines())
    run = json.loads((own / "environment.json").read_text())["run"]
    assert "run" not in first and second["run"] == run and len(coterie.load(own).metrics) == 2
    assert torch.load(own / "checkpoint.pt", weights_only=True)["run"] == run


CONTENTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "negative step": (lambda s: s.update(step=-1), "checkpoint.pt is damaged (its 'step' is -1)"),
    "huge step": (lambda s: s.update(step=10**9), "its 'step' is 1000000000, which is not in epoch 3"),
    "step of another epoch": (lambda s: s.update(step=1), "its 'step' is 1, which is not in epoch 3"),
    "huge epoch": (lambda s: s.update(epoch=300), "its 'epoch' is 300, of 2"),
    "negative epoch": (lambda s: s.update(epoch=-2), "its 'epoch' is -2"),
    "text for a step": (lambda s: s.update(step="4"), "its 'step' is of type str, not int"),
    "true for a step": (lambda s: s.update(step=True), "its 'step' is of type bool, not int"),
    "negative length": (lambda s: s.update(metrics=-5), "its 'metrics' is -5"),
    "huge length": (lambda s: s.update(metrics=10**12), "metrics.jsonl ends after 2 records, which checkpoint.pt"),
    "length inside a line": (lambda s: s.update(metrics=s["metrics"] - 9), "metrics.jsonl has other records than"),
    "no records": (lambda s: s.update(metrics=0), "its 'metrics' is 0 after 2 epochs"),
    "no optimiser": (lambda s: s.pop("optimizer"), "it has no 'optimizer'"),
    "no step": (lambda s: s.pop("step"), "it has no 'step'"),
    "no weights": (lambda s: s.pop("method"), "it has no 'method'"),
    "a list of weights": (lambda s: s.update(method=[]), "its 'method' is of type list, not dict"),
    "an empty optimiser": (lambda s: s.update(optimizer={}), "does not fit this code's network or optimiser"),
    "an empty meter": (lambda s: s.update(meter=[]), "does not fit this code's network or optimiser"),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_strange_content_gets_a_sentence(own: Path, kind: str) -> None:
    change, sentence = CONTENTS[kind]
    (own / "checkpoint.previous.pt").unlink()
    edit_state(own / "checkpoint.pt", change)
    assert sentence in (text := refused_unchanged(own)) and "--restart" in text


def test_a_checkpoint_that_is_no_state_gets_a_sentence(own: Path) -> None:
    (own / "checkpoint.previous.pt").unlink()
    torch.save([1, 2], own / "checkpoint.pt")
    assert "checkpoint.pt is damaged (it holds no state of a training)" in refused_unchanged(own)
    assert "it holds no state of a training" in refused("evaluate", own)


def test_the_previous_checkpoint_is_taken_in_place_of_a_strange_one(runs: Path, own: Path) -> None:
    edit_state(own / "checkpoint.pt", CONTENTS["huge step"][0])
    damaged = (own / "checkpoint.pt").read_bytes()
    _, errors = printed("train", *options(), "--out", own)
    assert (
        "is damaged (its 'step' is 1000000000" in errors and "checkpoint.previous.pt, of step 4, is used" in errors
    )
    assert (own / "checkpoint.damaged1.pt").read_bytes() == damaged
    assert (own / "student.safetensors").read_bytes() == (runs / "own" / "student.safetensors").read_bytes()
    # The good state was not given up for the damaged one.
    assert torch.load(own / "checkpoint.previous.pt", weights_only=True)["step"] == 4
