"""Runs become groups: which runs are one recipe, what each is called, and what is compared."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from coterie.report import grouping, groups, summary
from coterie.runs import reader as runs
from tests.helpers.report import changed_copy, group_labels, last_error


def test_groups_are_told_apart_by_what_is_unusual(copied: Path) -> None:
    def variant(name: str, old: str, new: str) -> None:
        shutil.copytree(copied / "Baseline-0", copied / name)
        config = (copied / name / "config.yaml").read_text()
        assert old in config
        (copied / name / "config.yaml").write_text(config.replace(old, new))

    variant("b-ema", "ema: false", "ema: true")
    variant("b-long", "epochs: 3", "epochs: 12")
    variant("b-views", "views: 1", "views: 3")
    variant("b-parts", "accumulate: 1", "accumulate: 2")  # batch-norm sees less
    run_groups = grouping.group_runs([runs.read_run(path) for path in runs.find_runs([copied])])
    labels = {g.label: [r.path.name for r in g.runs] for g in run_groups}
    assert labels == {
        "Baseline": ["Baseline-0", "Baseline-1"],
        "PCL": ["PCL-0", "PCL-1"],
        "Baseline, ema": ["b-ema"],
        "Baseline, epochs 12": ["b-long"],
        "Baseline, accumulate 2": ["b-parts"],
        "Baseline, views 3": ["b-views"],
    }


def test_a_seed_that_was_run_twice_counts_once(copied: Path) -> None:
    shutil.copytree(copied / "PCL-1", copied / "again")
    lines = (copied / "again" / "metrics.jsonl").read_text()
    (copied / "again" / "metrics.jsonl").write_text(re.sub(r'"error": [\d.]+', '"error": 50.0', lines))
    base, peers = grouping.group_runs([runs.read_run(path) for path in runs.find_runs([copied])])
    gap = groups.error_difference(peers, base)
    first, second, alone = (last_error(copied / name) for name in ("PCL-0", "PCL-1", "Baseline-0"))
    pairs = [first - alone, (second + 50) / 2 - last_error(copied / "Baseline-1")]
    assert gap is not None and gap.count == 2 and gap.mean == pytest.approx(sum(pairs) / 2)


def test_a_run_under_two_names_counts_once(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copied)
    directories = runs.find_runs([Path("PCL-0"), copied / "PCL-0", copied])
    assert directories[0] == Path("PCL-0") and len(directories) == len(runs.find_runs([copied]))


def test_no_verdict_on_runs_that_go_on(copied: Path) -> None:
    """Four settings, in each a Baseline that has finished and a PCL that has not."""
    for width in (1, 2, 3, 4):
        for run in ("Baseline-0", "PCL-0"):
            changed_copy(copied, run, f"{run}-w{width}", ("model: resnet8", f"model: resnet8w{width}"))
            file = copied / f"{run}-w{width}" / "metrics.jsonl"
            if run == "PCL-0":
                file.write_text(file.read_text().splitlines(keepends=True)[0])
    for run in ("Baseline-0", "Baseline-1", "PCL-0", "PCL-1"):
        shutil.rmtree(copied / run)
    sentences = summary.summary_sentences(
        grouping.group_runs([runs.read_run(path) for path in runs.find_runs([copied])])
    )
    assert len(sentences) == 4 and sentences[-1] == "1 more is in the table."


def test_equal_errors_are_no_difference(copied: Path) -> None:
    for seed in (0, 1):
        file = copied / f"PCL-{seed}" / "metrics.jsonl"
        last = json.loads((copied / f"Baseline-{seed}" / "metrics.jsonl").read_text().splitlines()[-1])
        error = last["predictors"][last["deployed"]]["error"]
        records = [json.loads(line) for line in file.read_text().splitlines()]
        records[-1]["predictors"][records[-1]["deployed"]]["error"] = error
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    paths = [copied / f"{method}-{seed}" for method in ("Baseline", "PCL") for seed in (0, 1)]
    sentence, *_ = summary.summary_sentences(grouping.group_runs([runs.read_run(path) for path in paths]))
    assert ": no difference (+0.00 ± 0.00 points" in sentence


def test_an_option_that_is_switched_off_tells_recipes_apart(copied: Path) -> None:
    """Of five PCLs one is without input augmentation: it must not be called PCL too."""
    for peers in (2, 4, 5):
        changed_copy(copied, "PCL-0", f"p{peers}", ("peers: 3", f"peers: {peers}"))
    changed_copy(copied, "PCL-0", "plain", ("input_augmentation: true", "input_augmentation: false"))
    names = [label for _, label, _ in group_labels(copied)]
    assert "PCL, no input augmentation" in names and len(set(names)) == len(names) == 6


def test_how_and_where_a_run_was_computed_makes_no_other_recipe(copied: Path) -> None:
    changed_copy(copied, "PCL-0", "tracked", ("track: null", "track: tensorboard"), ("seed: 0", "seed: 7"))
    assert ("resnet8 on hostile", "PCL", 3) in group_labels(copied)


def test_of_different_peers_the_first_is_named(copied: Path) -> None:
    config = copied / "PCL-0" / "config.yaml"
    config.write_text(config.read_text().replace("peers: 3", "peers: resnet14,resnet8"))
    assert runs.read_run(copied / "PCL-0").setting == "resnet14 on hostile"
