"""Collect the runs of a frozen clone: finished ones only, no weights, no path of the machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from collect_runs import collect


def make_run(clone: Path, name: str, epochs_trained: int) -> Path:
    run = clone / "results" / "study" / name
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("epochs: 3\n")
    (run / "metrics.jsonl").write_text("".join(f'{{"epoch": {e}}}\n' for e in range(epochs_trained)))
    (run / "environment.json").write_text(json.dumps({"directory": str(clone / "results" / "study")}))
    (run / "checkpoint.pt").write_bytes(b"weights")
    return run


def test_finished_runs_are_copied_without_weights_and_paths(tmp_path: Path) -> None:
    clone, results = tmp_path / "clone", tmp_path / "here"
    make_run(clone, "whole", 3)
    make_run(clone, "part", 2)
    assert collect(clone, results) == [results / "study" / "whole"]
    names = {file.name for file in (results / "study" / "whole").iterdir()}
    assert names == {"config.yaml", "metrics.jsonl", "environment.json"}
    environment = json.loads((results / "study" / "whole" / "environment.json").read_text())
    assert environment["directory"] == "results/study"
    assert collect(clone, results) == []


def test_a_run_with_other_records_is_refused(tmp_path: Path) -> None:
    clone, results = tmp_path / "clone", tmp_path / "here"
    run = make_run(clone, "whole", 3)
    collect(clone, results)
    (run / "metrics.jsonl").write_text('{"epoch": 2, "error": 1}\n')
    with pytest.raises(SystemExit, match="other records"):
        collect(clone, results)
    assert (results / "study" / "whole" / "metrics.jsonl").read_text().count("\n") == 3
