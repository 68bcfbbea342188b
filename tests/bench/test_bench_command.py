"""`coterie bench` as users call it: its goals, tables, sections and refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.bench import bench, floor, goals, growth, noise, parts, startup, steps, subjects, tables
from coterie.bench.size import FULL, QUICK, Size
from coterie.cli import measuring
from coterie.errors import Failure
from tests.bench.test_bench import TINY
from tests.helpers.common import coterie, refused, script


def result(quick: bool = False) -> dict[str, Any]:
    """A result with the figures of the page this was written from; every section is there."""
    times = {"seconds": 0.5, "ratio": 1.0, "quartiles": [0.9, 1.1], "turns": 3}
    rows = {row: {**times, "theory": 1.0, "memory": 10**8, "memory_ratio": 1.0} for row in subjects.ROWS}
    rows["PCL"] |= {"ratio": 4.2}
    held = {name: {"bytes": 1, "to_reference": 0.5} for name in ("PCL", steps.RECOMPUTED, steps.REFERENCE)}
    layer = {"input": [8, 3, 32, 32], "weight": [16, 3, 3, 3], "stride": [1, 1], "count": 1}
    layer |= {f"{k}_{f}": 0.001 for k in ("forward", "both") for f in floor.LAYOUTS}
    speed = {"speed_up": 1.9, "quartiles": [1.8, 2.0], "images_per_second": 9, "reference_images_per_second": 5}
    part = {"share": 0.004, "quartiles": [0.001, 0.005], "seconds": 0.001, "turns": 3}
    names = ("data", "loss terms", "optimiser", "averages", "watch and progress", "checkpoint")
    growth = {**times, "theory": 4.0, "images_per_second": 7, "speed": 1.5}
    sections = {
        "startup": {"coterie --help": times},
        "steps": {"methods": rows, "memory": held},
        "floor": {"PCL": {**times, "floor_seconds": 1}, "Baseline": {**times, "floor_seconds": 1}}
        | {"convolutions": [layer]},
        "reference": {"training": speed, "data": speed},
        "parts": {
            "step": {"parts": dict.fromkeys(names, part), "other": 0.016, "epoch_steps": 391},
            "evaluation": times,
            "export": {"torch": 1.0},
        },
        "growth": {kind: {"1": growth, "2": growth} for kind in ("peers", "batch", "width", "processes")},
    }
    return {
        "environment": {"commit": "abc", "processor": "p", "cores": 2, "threads": 1, "gpus": [], "torch": "2"}
        | {"date": "2026-11-16", "command": "coterie bench"},
        "quick": quick,
        "size": dataclasses.asdict(FULL),
        "sections": sections,
        "goals": goals.judged(sections),
    }


def test_goals_are_judged_by_their_limits() -> None:
    found = {goal["goal"]: goal for goal in result()["goals"]}
    assert len(found) == len(goals.GOALS)
    missed = [name for name, goal in found.items() if not goal["met"]]
    assert missed == ["PCL step / plain step"]
    assert found["PCL step / plain step"]["value"] == 4.2
    assert found["PCL end to end / reference, images per second"]["met"]
    assert goals.judged({"startup": {"coterie --help": {"seconds": 2.0}}})[0]["met"] is False
    assert goals.judged({}) == []


def test_a_quick_run_judges_nothing() -> None:
    judged, quick = (tables.tables(result(quick))[-1] for quick in (False, True))
    assert {row[-1].text for row in judged.rows} == {"met", "missed"}
    assert {row[-1].text for row in quick.rows} == {""}


def test_the_tables_are_drawn_into_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = script("draw_bench")
    document, file = tmp_path / "performance.md", tmp_path / "bench.json"
    document.write_text("before\n<!-- coterie bench -->\nold\n<!-- end -->\nafter\n")
    file.write_text(json.dumps(result()))
    monkeypatch.setattr("sys.argv", ["draw_bench.py", str(file), str(document)])
    draw.main()
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| PCL | 4.20 | 0.90 to 1.10 | 1.00 |" in text and "commit abc" in text
    for chart in ("bench_methods.svg", "bench_peers.svg"):
        assert "<svg" in (tmp_path / chart).read_text()


def test_an_unknown_section_is_refused(tmp_path: Path) -> None:
    assert refused("bench", "--only", "steps,flor") == "There is no section 'flor'; did you mean 'floor'?"
    said = refused("bench", "--only", "startup", "-o", tmp_path / "nowhere" / "bench.json")
    assert "make it first" in said
    assert refused("bench", "-o", tmp_path) == f"{tmp_path} cannot be written: choose another --output."


def test_a_disk_that_is_full_at_the_end_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise Failure("no space left on device")

    monkeypatch.setattr(bench, "bench", lambda quick, only: result())
    monkeypatch.setattr(bench, "write", full)
    with pytest.raises(Failure, match="no space"):
        measuring.bench(output=str(tmp_path / "bench.json"))
    assert "PCL w/o InAu" in capsys.readouterr().out


def test_sections_are_those_of_the_help_and_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    for name in bench.SECTIONS:
        monkeypatch.setitem(bench.SECTIONS, name, lambda size, name=name: measured.append(name) or {})
    monkeypatch.setattr(bench, "judged", lambda found: [])
    assert f"sections: {', '.join(bench.SECTIONS)}." in (measuring.bench.__doc__ or "")
    assert list(bench.SECTIONS) == list(tables.SECTIONS)
    bench.bench(only=" floor, startup,floor,")
    assert measured == ["floor", "startup"]


@pytest.mark.parametrize(
    ("device", "cores", "gpus", "counts"),
    [("cpu", 1, 0, ["1"]), ("cpu", 2, 0, ["1", "2"]), ("cuda", 8, 1, ["1"]), ("cuda", 8, 2, ["1", "2"])],
)
def test_two_processes_where_each_has_a_place_of_its_own(
    device: str, cores: int, gpus: int, counts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "device", lambda: torch.device(device))
    monkeypatch.setattr(growth, "cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(growth, "_trained", lambda size, processes: 30.0 * processes)
    found = growth._processes(TINY)
    assert list(found) == counts and found["1"]["speed"] == 1
    assert found.get("2", {"speed": 2})["speed"] == 2


def test_the_command_measures_and_writes(tmp_path: Path) -> None:
    """In a real process."""
    file = tmp_path / "bench.json"
    done = coterie("bench", "--quick", "--only", "floor", "--json", "-o", file)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads(file.read_text())
    assert set(found["sections"]) == {"floor"} and found["quick"]
    assert found["environment"]["threads"] == 1 and "host" not in found["environment"]
    assert [goal["goal"] for goal in found["goals"]] == ["PCL step / its convolutions alone"]
    assert found["sections"]["floor"]["PCL"]["ratio"] > 0


def test_start_up_is_timed_in_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "TURNS", 1)
    found = startup.measure(QUICK)
    train = found["coterie train, to its first step"]["seconds"]
    assert train > found["coterie --help"]["seconds"] > 0


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(Failure, match="no step was taken"):
        startup.python(["-c", startup.FIRST_STEP, "--help"])


def test_every_section_measures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The sections that start no training of their own, on next to nothing, shown on the terminal."""
    monkeypatch.setattr("coterie.bench.growth.PEERS", (1, 2))
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr(
        "coterie.bench.growth._processes", lambda size: {"1": {"images_per_second": 1, "speed": 1}}
    )
    monkeypatch.setattr(parts, "_export", lambda size: {"torch": 1.0, "parameters": 1.0, "macs": 1.0})
    found = bench.bench(quick=True, only="steps,reference,parts,growth")
    bench.show(found)
    said = capsys.readouterr().out
    assert "PCL w/o InAu" in said and "Goals" in said
    rows = found["sections"]["steps"]["methods"]
    assert set(rows) == set(subjects.ROWS) and all(row["memory"] > 0 for row in rows.values())
    assert rows["DML"]["memory"] > rows["Baseline"]["memory"]
    assert list(found["sections"]["growth"]["peers"]) == ["1", "2"]
    assert found["sections"]["reference"]["training"]["speed_up"] > 0


def test_noise_is_a_data_set() -> None:
    data = noise.Noise(40)
    data.load()
    views, labels = data.views(torch.arange(8).numpy(), 2, 0, 0)
    assert data.train_size == 40 and data.test_size == 10 and len(data.classes) == 100
    assert [view.shape for view in views] == [(8, 3, 32, 32)] * 2 and len(labels) == 8


def test_sizes_are_the_issues() -> None:
    assert (FULL.model, FULL.batch, FULL.peers) == ("resnet32", 128, 3)
    assert isinstance(QUICK, Size) and QUICK.rounds < FULL.rounds
