"""`coterie train --seeds`: what is missing is trained, what was killed goes on, a table over the seeds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from coterie.config.options import from_options
from coterie.config.recipe import Recipe
from coterie.experiments import train_seeds as module
from coterie.experiments.recipe_job import job_of
from coterie.methods import Method
from coterie.paper.cells import table_cells
from coterie.training.loop import train_recipe
from tests.helpers.common import build_once, printed, refused
from tests.helpers.experiment import toy, write_run

WORDS = ["--model", "resnet8", "--data.limit", "5", "--batch", "25", "--epochs", "2", "--checkpoint_every", "0s"]
SEEDS = (3, 4, 5)


def recipe(seed: int) -> Recipe:
    data = {"class_path": "digits", "init_args": {"limit": 5}}
    options = {"model": "resnet8", "data": data, "batch": 25, "epochs": 2, "checkpoint_every": "0s"}
    return from_options({**options, "seed": seed})


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds, each trained by itself in this process."""

    def train_all(out: Path) -> None:
        for seed in SEEDS:
            train_recipe(recipe(seed), out / job_of(recipe(seed)).name)

    return build_once(tmp_path_factory, "seeds", train_all)


class Crash(BaseException):
    """Raised in place of a killed process."""


def errors(out: Path) -> list[float]:
    """By hand: the deployed error in the last line of each metrics.jsonl."""
    records = [json.loads(file.read_text().splitlines()[-1]) for file in sorted(out.glob("*/metrics.jsonl"))]
    return [record["predictors"][record["deployed"]]["error"] for record in records]


def test_it_continues_what_is_missing(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three seeds two are done, and the one between them was killed within its last epoch."""
    out = tmp_path / "runs"
    names = [job_of(recipe(seed)).name for seed in SEEDS]
    assert [name.rpartition("-")[2] for name in names] == ["s3", "s4", "s5"]
    for name in (names[0], names[2]):
        shutil.copytree(undisturbed / name, out / name)
    module.write_note(out, module.NOTE, {})
    steps, original = [0], Method.after_step

    def after_step(self: Method) -> None:
        original(self)
        steps[0] += 1
        if steps[0] == 4:
            raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Method, "after_step", after_step)
        train_recipe(recipe(4), out / names[1])
    assert not (out / names[1] / "student.safetensors").exists()
    before = (out / names[0] / "metrics.jsonl").stat().st_mtime_ns

    monkeypatch.setattr("coterie.data.streaming.cores", lambda: 1)
    text, status = printed("train", *WORDS, "--seed", 3, "--seeds", 3, "--out", out)
    assert f"[1/1] {names[1]}: done" in status
    assert (out / names[0] / "metrics.jsonl").stat().st_mtime_ns == before
    for name in names:
        student = (out / name / "student.safetensors").read_bytes()
        assert student == (undisturbed / name / "student.safetensors").read_bytes(), name
    values = errors(out)
    rows = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in text.splitlines() if "│" in line}
    assert rows == {
        **{str(seed): f"{error:.2f}" for seed, error in zip(SEEDS, values, strict=True)},
        "all": f"{mean(values):.2f} ± {stdev(values):.2f}",
    }
    assert "PCL, resnet8 on digits: error on the test images" in text and f"`coterie report {out}`" in text
    assert "Errors are those after the last epoch." in text

    monkeypatch.setattr(module, "run_jobs", lambda *_: pytest.fail("it trained"))
    assert printed("train", *WORDS, "--seed", 3, "--seeds", 3, "--out", out)[0] == text


def test_of_several_labels_an_image_the_column_is_that_of_map(tmp_path: Path) -> None:
    job = table_cells("fig3", toy(), 1)[0].jobs[0]
    metrics = write_run(tmp_path, job, {"peer1": 12.0, "mean1": 11.0}) / "metrics.jsonl"
    assert module.seeds_table([job], tmp_path).columns[1] == "error %"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for predictor in (score for line in lines for score in line["predictors"].values()):
        predictor["map"] = 100 - predictor["error"]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = module.seeds_table([job], tmp_path)
    assert table.columns[1] == "100 − mAP" and "100 − mAP on the test images" in table.title


def test_a_run_that_fails_is_told(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Path(shutil.copytree(undisturbed, tmp_path / "runs"))
    module.write_note(out, module.NOTE, {})
    shutil.rmtree(next(out.glob("*-s5")))
    monkeypatch.setattr("coterie.experiments.launch_local._train", lambda *_: -9)
    with pytest.raises(SystemExit) as ended:
        printed("train", *WORDS, "--seed", 3, "--seeds", 3, "--out", out)
    assert ended.value.code == 1


def test_what_is_refused(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(*words: Any, out: Path = tmp_path / "out") -> str:
        return refused("train", *WORDS, *words, "--out", out)

    assert sentence("--seeds", 0) == "--seeds must be at least 1, not 0."
    run = next(undisturbed.glob("*-s3"))
    assert (
        sentence("--seeds", 3, out=run)
        == f"{run} holds a single run: choose another --out for the runs of several seeds."
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    assert "is not empty" in sentence("--seeds", 3, out=tmp_path / "mine")
    assert "add --data.val_fraction 0.1" in sentence("--seeds", 3, "--select", "best")
    assert "holds no run" in sentence(out=undisturbed)  # the other way round: a directory of several seeds
    monkeypatch.setenv("RANK", "0")
    assert "leave torchrun out" in sentence("--seeds", 3)
    assert not (tmp_path / "out").exists()
