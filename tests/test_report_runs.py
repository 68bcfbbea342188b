"""The report: runs in whatever state and of whatever name are shown, and like is compared with like."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from coterie.report import groups, page, runs

from .report import EVIL, Page, records


def test_names_from_data_and_people_stay_text(copied: Path, tmp_path: Path, shown: Page) -> None:
    assert shown.tags.count("script") == 1 and EVIL in shown.text  # the page's own script, and the class as text
    run = copied / "<img src=x onerror=alert(2)>"
    (copied / "PCL-0").rename(run)
    environment = json.loads((run / "environment.json").read_text())
    environment["command"] = f'coterie "{EVIL}"'
    (run / "environment.json").write_text(json.dumps(environment))
    lines = (run / "metrics.jsonl").read_text().replace('"ce_peers"', '"<b>term</b>\\" onload=\\"x"')
    (run / "metrics.jsonl").write_text(lines)
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    assert found.tags.count("script") == 1 and "b" not in found.tags
    assert "<img src=x onerror=alert(2)>" in found.text and f'coterie "{EVIL}"' in found.text
    assert '<b>term</b>" onload="x' in found.lines["Loss terms: PCL, resnet8 on hostile"]
    assert html.escape(EVIL) in (tmp_path / "r.html").read_text()


def test_missing_partial_and_failed_runs_are_shown_and_named(copied: Path, tmp_path: Path) -> None:
    def edit(name: str, change: Any) -> None:
        file = copied / name / "metrics.jsonl"
        file.write_text(change(file.read_text()))

    for seed in range(2, 8):
        shutil.copytree(copied / "PCL-0", copied / f"PCL-{seed}")
        config = (copied / f"PCL-{seed}" / "config.yaml").read_text()
        (copied / f"PCL-{seed}" / "config.yaml").write_text(config.replace("seed: 0", f"seed: {seed}"))
    edit("PCL-2", lambda text: "".join(text.splitlines(keepends=True)[:2]))
    edit("PCL-3", lambda text: text[:-200])
    (copied / "PCL-4" / "metrics.jsonl").unlink()
    edit("PCL-5", lambda text: re.sub(r'"nll": [\d.]+', '"nll": NaN', text))
    edit("PCL-6", lambda text: text.replace('{"epoch": 1', '{"epoch": oops').replace('"lr": 0.1', '"lr": "?"'))
    (copied / "PCL-7" / "config.yaml").unlink()
    for file in (copied / "Baseline-0").glob("checkpoint*.pt"):
        file.write_bytes(b"not a checkpoint")
    (copied / "Baseline-1" / "environment.json").write_text("{")
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    named = zip(found.column("Runs", "run"), found.column("Runs", "state"), strict=True)
    states = {Path(run).name: state for (run, _), (state, _) in named}
    assert states["PCL-1"] == "complete"
    assert states["PCL-2"] == "2 of 3 epochs so far"
    assert states["PCL-3"] == "the last line of metrics.jsonl is cut off; 2 of 3 epochs so far"
    assert states["PCL-4"] == "no epoch has finished: there is no metrics.jsonl"
    assert "diverged" in states["PCL-5"] and "from epoch 1 on" in states["PCL-5"]
    assert states["PCL-6"] == "line 2 of metrics.jsonl is damaged"
    assert "there is no config.yaml" in states["PCL-7"]
    assert states["Baseline-1"] == "environment.json cannot be read"
    for name, state in states.items():
        assert state == "complete" or f"{name}: {state.split('; ')[0]}" in found.text
    assert "Baseline-0: " in found.text.split("Calibration")[-1]  # its weights cannot be loaded, and it says so
    # Unfinished runs do not count while finished ones are there: seeds 0, 1, 5 and 6 make the mean.
    methods = [text for text, _ in found.column("Results", "method")]
    assert found.column("Results", "seeds")[methods.index("PCL")][1] == 4
    errors = [records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (0, 1)]
    mean = (3 * errors[0] + errors[1]) / 4
    assert found.column("Results", "error %")[methods.index("PCL")][1] == pytest.approx(mean)


def test_one_run_that_has_only_begun(copied: Path, tmp_path: Path) -> None:
    for file in (copied / "PCL-0").iterdir():
        if file.name != "config.yaml":
            file.unlink()
    page.write([copied / "PCL-0"], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    assert "no run has finished an epoch yet" in found.text
    assert "there is no checkpoint.pt" in found.text
    assert found.column("Results", "error %") == [("–", None)]


def test_groups_are_told_apart_by_what_is_unusual(copied: Path) -> None:
    def variant(name: str, old: str, new: str) -> None:
        shutil.copytree(copied / "Baseline-0", copied / name)
        config = (copied / name / "config.yaml").read_text()
        assert old in config
        (copied / name / "config.yaml").write_text(config.replace(old, new))

    variant("b-ema", "ema: false", "ema: true")
    variant("b-long", "epochs: 3", "epochs: 12")
    variant("b-views", "views: 1", "views: 3")
    found = groups.group([runs.read(path) for path in runs.find([copied])])
    labels = {g.label: [r.path.name for r in g.runs] for g in found}
    assert labels == {
        "Baseline": ["Baseline-0", "Baseline-1"],
        "PCL": ["PCL-0", "PCL-1"],
        "Baseline, ema": ["b-ema"],
        "Baseline, epochs 12": ["b-long"],
        "Baseline, views 3": ["b-views"],
    }


def test_only_the_same_network_on_the_same_data_is_compared(copied: Path, tmp_path: Path) -> None:
    config = copied / "Baseline-1" / "config.yaml"
    config.write_text(config.read_text().replace("model: resnet8", "model: resnet14"))
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    names = zip(found.column("Results", "network and data"), found.column("Results", "method"), strict=True)
    rows = [(setting, method) for (setting, _), (method, _) in names]
    assert rows == [("resnet8 on hostile", m) for m in ("Baseline", "PCL")] + [("resnet14 on hostile", "Baseline")]
    errors = [value for _, value in found.column("Results", "error %")]
    assert [v for _, v in found.column("Results", "against Baseline")] == [
        None,
        pytest.approx(errors[1] - errors[0]),
        None,
    ]
    assert list(found.lines["Error of the deployed network, resnet14 on hostile"]) == ["Baseline"]
