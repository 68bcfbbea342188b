"""Results that held-out images selected are marked in every table, never mixed with those of the last epoch."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from coterie.cli.comparing import training_options
from coterie.config.options import from_options
from coterie.experiments.compare import plan_comparison, read_comparison
from coterie.experiments.compare_plan import CompareRequest, note_plan
from coterie.experiments.recipe_job import job_of
from coterie.experiments.run_state import run_state
from coterie.report.groups import error_difference, reference, settings
from coterie.report.page import compose, write_report
from coterie.report.table import to_markdown
from coterie.training.loop import train_recipe
from tests.helpers.common import build_once, printed
from tests.helpers.report import Page, changed_copy, group_labels, records

MARK = "selected on held-out images"
DATA = ["--model", "resnet8", "--data", "digits", "--data.limit", "10", "--data.val_fraction", "0.4"]
LENGTH = ["--batch", "30", "--epochs", "5", "--optimizer.lr", "0.3"]
WORDS = [*DATA, *LENGTH, "--select", "best", "--patience", "2"]


def request(out: Path) -> CompareRequest:
    return CompareRequest(out, training_options("Baseline,PCL", WORDS), 2)


@pytest.fixture(scope="session")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of two methods with selected weights, under the names that `coterie compare` gives them."""

    def train_all(out: Path) -> None:
        comparison = request(out)
        plan = plan_comparison(comparison, 1, 1)
        note_plan(comparison, plan)
        for label, jobs in plan.jobs(comparison).items():
            for job in jobs:
                train_recipe(comparison.recipe(label, seed=job.seed), out / job.name)

    return build_once(tmp_path_factory, "selected", train_all)


def best_errors(out: Path, method: str) -> list[float]:
    """By hand: the lowest error of the raw or averaged weights of peer 1 in all records of each run."""
    lowest = []
    for run in sorted(out.glob(f"{method}-*")):
        networks = [(record["predictors"], name) for record, name in product(records(run), ("peer1", "mean1"))]
        lowest.append(min(scores[name]["error"] for scores, name in networks if name in scores))
    return lowest


def as_text(values: list[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}"


@pytest.fixture
def mixed(selected: Path, tmp_path: Path) -> Path:
    """The selected runs, and copies that claim to deploy their last weights."""
    out = Path(shutil.copytree(selected, tmp_path / "runs"))
    for run in sorted(out.glob("*-s?")):
        last = ("select: best", "select: last"), ("patience: 2", "patience: null"), ("epochs: 5", "epochs: 1")
        changed_copy(out, run.name, f"last-{run.name}", *last)
        line = (out / f"last-{run.name}/metrics.jsonl").read_text().splitlines()[0]
        (out / f"last-{run.name}/metrics.jsonl").write_text(line + "\n")
    return out


def test_seeds_of_one_recipe_are_never_mixed_with_the_other_kind(mixed: Path) -> None:
    assert group_labels(mixed) == [
        (setting, method, 2)
        for setting in (f"resnet8 on digits, {MARK}", "resnet8 on digits")
        for method in ("Baseline", "PCL")
    ]


def test_only_the_same_kind_is_compared(mixed: Path) -> None:
    shutil.rmtree(next(mixed.glob("last-Baseline-*-s0")))
    shutil.rmtree(next(mixed.glob("last-Baseline-*-s1")))
    by_setting = settings(compose([mixed]).groups)
    alone = by_setting["resnet8 on digits"]
    assert [g.method for g in alone] == ["PCL"] and reference(alone) is None
    base, peers = by_setting[f"resnet8 on digits, {MARK}"]
    pairs = zip(best_errors(mixed, "PCL"), best_errors(mixed, "Baseline"), strict=True)
    gap = error_difference(peers, base)
    assert gap is not None and gap.mean == pytest.approx(mean(ours - theirs for ours, theirs in pairs))


def test_runs_of_before_the_option_are_of_the_last_kind(mixed: Path) -> None:
    for run in mixed.glob("last-*-s0"):
        config = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(config.replace("select: last\n", "").replace("patience: null\n", ""))
    assert {count for _, _, count in group_labels(mixed)} == {2}


def test_tables_are_marked(selected: Path, mixed: Path, tmp_path: Path) -> None:
    write_report([selected], tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    errors = [as_text(best_errors(selected, method)) for method in ("Baseline", "PCL")]
    assert [cell.removesuffix(" (chance level)") for cell, _ in page.column("Results", "error %")] == errors
    for table in ("Results", "Cost of training", "Student and ensemble"):
        assert MARK in next(caption for caption in page.tables if caption.startswith(table)), table
    assert all(cell.startswith("best of ") for cell, _ in page.column("Results", "epochs"))
    assert "Never the best epoch" not in page.text and "a little too low" in page.text
    states = [cell for cell, _ in page.column("Runs", "state")]
    assert len(states) == 4 and all(MARK in state for state in states) and "so far" not in page.text
    both = next(s for s in compose([mixed]).sections if s.name == "results").tables[0]
    rows = to_markdown(both).splitlines()
    assert sum(MARK in row for row in rows if row.startswith("| ")) == 2
    assert f"the best epoch only where '{MARK}' is said" in both.note


def test_a_comparison_says_it(selected: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(selected, tmp_path / "cmp"))
    text, status = printed("compare", *WORDS, "--methods", "Baseline,PCL", "--seeds", 2, "--out", out)
    assert "[1/" not in status  # runs that were stopped early are done
    flat = " ".join(text.split())
    assert f"resnet8 on digits, {MARK}: error on the held-out images" in flat
    for method in ("Baseline", "PCL"):
        row = next(line for line in text.splitlines() if line.startswith(f"│ {method} "))
        assert as_text(best_errors(selected, method)) in row
    assert "held-out images that selected each run's weights" in flat and "after the last epoch" not in flat
    result = read_comparison(request(out), plan_comparison(request(out), 1, 1))
    assert [run.error for run in result.runs["PCL"]] == best_errors(selected, "PCL")


def test_a_stopped_run_is_done_and_another_kind_is_not_taken_for_it(selected: Path, tmp_path: Path) -> None:
    run = next(path for path in sorted(selected.glob("*-s?")) if len(records(path)) < 5)  # patience was over
    options: dict[str, Any] = dict(request(tmp_path).methods[run.name.partition("-")[0]])
    seed = int(run.name[-1])
    job = job_of(from_options({**options, "seed": seed}))
    assert job.name == run.name and run_state(selected, job).kind == "done"
    last = job_of(from_options({**options, "seed": seed, "select": "last", "patience": None}))
    assert last.name != job.name
    shutil.copytree(run, tmp_path / last.name)
    state = run_state(tmp_path, last)
    assert state.kind == "damaged" and state.note == "its config.yaml has select best, not last"


def test_the_table_of_an_evaluation_is_marked(selected: Path) -> None:
    run = next(selected.glob("PCL-*-s0"))
    text, _ = printed("evaluate", run)
    flat = " ".join(text.split())
    kept = json.loads((run / "evaluation.json").read_text())
    assert f"after {kept['epochs']} epochs, {MARK} by the error of {kept['deployed']}" in flat
