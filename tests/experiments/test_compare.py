"""`coterie compare` and `coterie.compare` with real tiny trainings: the numbers, continuing, the page, objects."""

from __future__ import annotations

import json
import math
import shutil
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from scipy.stats import t
from torch import nn

import coterie
from coterie.cli.comparing import training_options
from coterie.cli.main import main
from coterie.errors import InputError, Stopped
from coterie.experiments import compare as module
from coterie.experiments.compare import plan_comparison
from coterie.experiments.compare_plan import CompareRequest, note_plan
from coterie.training.loop import train_recipe
from tests.helpers.common import build_once, printed

WORDS = ["--model", "resnet8", "--data", "digits", "--data.limit", "5", "--batch", "25", "--epochs", "1"]
METHODS = "Baseline,PCL"
OPTIONS: dict[str, Any] = {
    "model": "resnet8",
    "data": "digits",
    "data_options": {"limit": 5},
    "batch": 25,
    "epochs": 1,
}


def request(out: Path, seeds: int) -> CompareRequest:
    return CompareRequest(out, training_options(METHODS, WORDS), seeds)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two methods, trained in this process under the names that the command gives them."""

    def train_all(out: Path) -> None:
        comparison = request(out, 2)
        plan = plan_comparison(comparison, 1, 1)
        note_plan(comparison, plan)
        for label, jobs in plan.jobs(comparison).items():
            for job in jobs:
                train_recipe(comparison.recipe(label, seed=job.seed), out / job.name)

    return build_once(tmp_path_factory, "comparison", train_all)


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    """A copy of these runs."""
    return Path(shutil.copytree(trained, tmp_path / "cmp"))


def errors(out: Path, method: str) -> dict[int, float]:
    """By hand: the deployed predictor's error in the last line of each metrics.jsonl."""
    by_seed = {}
    for run in sorted(out.glob(f"{method}-*")):
        record = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        by_seed[int(run.name.rpartition("-s")[2])] = record["predictors"][record["deployed"]]["error"]
    return by_seed


def seconds(out: Path, method: str) -> float:
    """By hand: the training time of the fastest run, each of one epoch."""
    records = [json.loads((run / "metrics.jsonl").read_text()) for run in out.glob(f"{method}-*")]
    return float(min(record["time"]["train"] for record in records))


def test_the_table_is_that_of_the_records(out: Path) -> None:
    text, status = printed("compare", *WORDS, "--methods", "PCL,Baseline", "--seeds", 2, "--out", out)
    assert "[1/" not in status  # nothing was missing
    baseline, pcl = errors(out, "Baseline"), errors(out, "PCL")
    assert list(baseline) == list(pcl) == [0, 1]
    differences = [pcl[seed] - baseline[seed] for seed in (0, 1)]
    half = t.ppf(0.975, 1) * stdev(differences) / math.sqrt(2)
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in text.splitlines() if "│" in line}
    cells = {name: [cell.strip() for cell in row] for name, row in rows.items()}
    first, second = (f"{mean(e.values()):.2f} ± {stdev(e.values()):.2f}" for e in (baseline, pcl))
    assert cells["Baseline"][:4] == [first, "2", "–", "–"] and cells["Baseline"][5] == "1"
    difference = f"{mean(differences):+.2f} ± {half:.2f} (2)"
    assert cells["PCL"][:4] == [second, "2", difference, f"{sum(d < 0 for d in differences)}/2"]
    assert cells["PCL"][4] == f"{seconds(out, 'PCL') / seconds(out, 'Baseline'):.1f}"  # cost
    assert "resnet8 on digits: error on the test images" in text and (out / "report.html").is_file()
    winner = min((baseline, pcl), key=lambda values: mean(values.values()))
    name = "PCL" if winner is pcl else "Baseline"
    line = next(line for line in text.splitlines() if "coterie export" in line)
    assert f"{out}/{name}-resnet8-digits-" in line and "-s0 -o student.onnx" in line


def test_the_same_command_trains_only_what_is_missing(out: Path) -> None:
    gone = next(out.glob("PCL-*-s1"))
    shutil.rmtree(gone)
    before = {file: file.stat().st_mtime_ns for file in out.glob("*/metrics.jsonl")}
    text, status = printed("compare", *WORDS, "--methods", METHODS, "--seeds", 2, "--out", out)
    assert f"[1/1] {gone.name}: done" in status and (gone / "student.safetensors").is_file()
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert "To see a difference as large as now" in text or "clearly" in text


def test_one_seed_is_called_one_seed_and_a_failed_run_is_told(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shutil.rmtree(next(out.glob("PCL-*-s1")))
    monkeypatch.setattr("coterie.experiments.launch_local._train", lambda *_: -9)
    with pytest.raises(SystemExit) as ended:
        main(["compare", *WORDS, "--methods", METHODS, "--seeds", "2", "--out", str(out)])
    text, status = capsys.readouterr()
    assert ended.value.code == 1 and "failed: killed by signal 9; the same command tries again." in status
    assert "One seed says nothing about chance: with it PCL made" in text


def test_from_python_by_names(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same runs as the command's: nothing is trained again."""
    monkeypatch.setattr(module, "run_jobs", lambda *_: pytest.fail("it trained"))
    result = coterie.compare(methods=["Baseline", "PCL"], seeds=2, out=out, **OPTIONS)
    assert isinstance(result, coterie.Comparison) and list(result.runs) == ["Baseline", "PCL"]
    assert [run.error for run in result.runs["PCL"]] == list(errors(out, "PCL").values())
    assert result.table.rows[1][0].text == "PCL" and result.winner in result.runs
    html = result._repr_html_()
    assert html.count("<tr>") == 3 and result.verdict.split(" (")[0] in html.replace("&#39;", "'")
    assert repr(result).startswith(f"Comparison('{out}': Baseline, PCL; ") and len(repr(result)) < 300


class Net(nn.Sequential):
    def __init__(self, num_classes: int) -> None:
        layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(8, num_classes))


def test_from_python_with_objects_and_again_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = torch.randint(0, 255, (40, 3, 8, 8), dtype=torch.uint8), torch.arange(40) % 2
    options: dict[str, Any] = {
        "model": lambda num_classes: Net(num_classes),
        "data": ((images, labels), (images, labels)),
        "methods": [partial(coterie.KDCL, temperature=2.0), coterie.Baseline],
        "seeds": 2,
        "equal_cost": True,
        "epochs": 2,
        "batch": 20,
        "out": tmp_path / "out",
    }
    titles: list[str] = []

    def train_some(recipe: Any, path: Path, title: str) -> None:
        if len(titles) == 3 and "stopped" not in titles:
            titles.append("stopped")
            raise Stopped("stopped by a signal")
        titles.append(title)
        train_recipe(recipe, path, title)

    monkeypatch.setattr(module, "train_recipe", train_some)
    with pytest.raises(Stopped):
        coterie.compare(**options)
    result = coterie.compare(**options)
    assert len(titles) == 5 and len(set(titles)) == 5  # none was trained twice
    assert list(result.runs) == ["Baseline", "KDCL, temperature 2.0"]
    assert [cell.text for row in result.table.rows for cell in row[-1:]] == ["6", "2"]  # epochs at equal cost
    student = result.runs["KDCL, temperature 2.0"][0].student()
    assert isinstance(student, Net)
    assert (tmp_path / "out" / "report.html").is_file()


def test_bad_input_from_python_is_a_sentence(tmp_path: Path) -> None:
    free = tmp_path / "out"
    with pytest.raises(InputError, match="There is no option 'epoch'; did you mean 'epochs'"):
        coterie.compare(out=free, epoch=3)
    with pytest.raises(InputError, match="There is no option 'method.temp'"):
        coterie.compare(out=free, method_options={"temp": 3})
    with pytest.raises(InputError, match="`seeds` must be at least 1, not 0"):
        coterie.compare(out=free, seeds=0)
    assert not free.exists()
