"""`coterie bench` as users call it: its tables, sections and refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.bench import command, noise, steps, subjects
from coterie.bench.subjects import FULL, QUICK
from coterie.cli import measuring
from coterie.errors import Failure
from tests.bench.test_bench import TINY
from tests.helpers.common import coterie, printed, refused


def result() -> dict[str, Any]:
    """A result with the figures of the page this was written from."""
    times = {"seconds": 0.5, "ratio": 1.0, "quartiles": [0.9, 1.1], "turns": 3}
    rows = {row: {**times, "theory": 1.0, "memory": 10**8, "memory_ratio": 1.0} for row in subjects.SUBJECTS}
    rows["PCL"] |= {"ratio": 4.2}
    memory = {name: {"bytes": 1, "to_reference": 0.5} for name in ("PCL", steps.RECOMPUTED, steps.REFERENCE)}
    speed = {"speed_up": 1.9, "quartiles": [1.8, 2.0], "images_per_second": 9, "reference_images_per_second": 5}
    machine = {"commit": "abc", "processor": "p", "cores": 2, "threads": 1, "gpus": [], "torch": "2"}
    return {
        "environment": {**machine, "date": "2026-11-16", "command": "coterie bench"},
        "quick": False,
        "size": dataclasses.asdict(FULL),
        "sections": {
            "steps": {"methods": rows, "memory": memory},
            "reference": {"training": speed, "data": speed},
        },
    }


def test_unknown_sections_and_bad_outputs_are_refused(tmp_path: Path) -> None:
    assert refused("bench", "--only", "steps,referense") == (
        "There is no section 'referense'; did you mean 'reference'?"
    )
    assert "there is: steps, reference." in refused("bench", "--only", "xyz")
    assert "make it first" in refused("bench", "--only", "steps", "-o", tmp_path / "nowhere" / "bench.json")
    assert refused("bench", "-o", tmp_path) == f"{tmp_path} cannot be written: choose another --output."


def test_a_disk_that_is_full_at_the_end_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise Failure("no space left on device")

    monkeypatch.setattr(command, "run_benchmark", lambda quick, only: result())
    monkeypatch.setattr("coterie.files.write", full)
    with pytest.raises(Failure, match="no space"):
        measuring.bench(output=str(tmp_path / "bench.json"))
    assert "PCL w/o InAu" in capsys.readouterr().out


def test_sections_are_those_of_the_help_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    for name, (_, tables) in command.SECTIONS.items():
        measure = lambda size, name=name: measured.append(name) or {}  # noqa: E731
        monkeypatch.setitem(command.SECTIONS, name, (measure, tables))
        assert f"{name} (" in (measuring.bench.__doc__ or "")
    command.run_benchmark(only=" reference, steps,reference,")
    assert measured == ["reference", "steps"]


@pytest.mark.slow
def test_the_command_measures_and_writes(tmp_path: Path) -> None:
    """In a real process."""
    file = tmp_path / "bench.json"
    done = coterie("bench", "--quick", "--only", "reference", "--json", "-o", file)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written == json.loads(file.read_text())
    assert set(written["sections"]) == {"reference"} and written["quick"]
    assert written["environment"]["threads"] == 1 and "host" not in written["environment"]
    assert written["sections"]["reference"]["data"]["speed_up"] > 0


def test_steps_are_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """On next to nothing; each row's memory is measured in a process of its own."""
    monkeypatch.setattr(command, "QUICK", TINY)
    measured = ("Baseline", "DML", "PCL")
    monkeypatch.setattr(steps, "SUBJECTS", {name: subjects.SUBJECTS[name] for name in measured})
    rows = json.loads(printed("bench", "--quick", "--only", "steps", "--json")[0])["sections"]["steps"]["methods"]
    assert tuple(rows) == measured and all(row["memory"] > 0 for row in rows.values())
    assert rows["DML"]["memory"] > rows["Baseline"]["memory"]
    monkeypatch.setattr(command, "run_benchmark", lambda quick, only: result())
    text = printed("bench")[0]
    assert "PCL w/o InAu" in text and "4.20" in text and "commit abc." in text


def test_noise_is_a_data_set() -> None:
    data = noise.Noise(40)
    data.load()
    views, labels = data.views(torch.arange(8).numpy(), 2, 0, 0)
    assert data.train_size == 40 and data.test_size == 10 and len(data.classes) == 100
    assert [view.shape for view in views] == [(8, 3, 32, 32)] * 2 and len(labels) == 8


def test_sizes_are_the_papers() -> None:
    assert (FULL.model, FULL.batch, FULL.peers) == ("resnet32", 128, 3)
    assert QUICK.rounds < FULL.rounds
