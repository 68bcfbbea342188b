"""The development benchmarks in benchmarks/: what they take apart adds up, and each runs."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.bench import subjects
from coterie.bench.subjects import QUICK
from coterie.bench.timing import time_in_turns
from coterie.models import factory
from tests.bench.test_bench import TINY
from tests.bench.test_bench_command import result
from tests.helpers.common import script

floor, goals, growth, parts, startup = map(script, ("floor", "goals", "growth", "parts", "startup"))
harness, launches = script("harness"), script("launches")


def test_launches_are_the_innermost_operators_that_compute() -> None:
    from torch.profiler import profile

    x, lists = torch.randn(4, 4), [torch.ones(2), torch.ones(3)]
    with profile() as profiled:
        torch.nn.functional.linear(x.t(), x.view(4, 4)).relu()  # a product and a ReLU
        torch._foreach_add_(lists, 1.0)  # one, as on a GPU
        x.to(torch.float64)  # a copy
    assert sum(launches.launches(event) for event in profiled.events() if event.cpu_parent is None) == 4


def all_sections() -> dict[str, Any]:
    """A result of `coterie bench` and of every script."""
    times = {"seconds": 0.5, "ratio": 1.0, "quartiles": [0.9, 1.1], "turns": 3}
    layer = {"input": [8, 3, 32, 32], "weight": [16, 3, 3, 3], "stride": [1, 1], "count": 1}
    layer |= {f"{kind}_{layout}": 0.001 for kind in ("forward", "both") for layout in floor.LAYOUTS}
    part = {"share": 0.004, "quartiles": [0.001, 0.005], "seconds": 0.001, "turns": 3}
    names = ("data", "loss terms", "optimiser", "averages", "watch and progress", "checkpoint")
    row = {**times, "theory": 4.0, "images_per_second": 7, "speed": 1.5}
    whole = result()
    whole["sections"] |= {
        "startup": {"coterie --help": times},
        "floor": {"PCL": {**times, "floor_seconds": 1}, "Baseline": {**times, "floor_seconds": 1}}
        | {"convolutions": [layer]},
        "parts": {
            "step": {"parts": dict.fromkeys(names, part), "other": 0.016, "epoch_steps": 391},
            "evaluation": times,
            "export": {"torch": 1.0},
        },
        "growth": {kind: {"1": row, "2": row} for kind in ("peers", "batch", "width", "processes")},
    }
    return whole


def test_goals_are_judged_by_their_limits() -> None:
    sections = all_sections()["sections"]
    rows = {row[0].text: row for row in goals.goals_table(sections).rows}
    assert len(rows) == len(goals.GOALS)
    assert [name for name, row in rows.items() if row[-1].text == "missed"] == ["PCL step / plain step"]
    assert rows["PCL step / plain step"][2].value == 4.2
    assert rows["PCL end to end / reference, images per second"][-1].text == "met"
    slow = goals.goals_table({"startup": {"coterie --help": {"seconds": 2.0}}}).rows
    assert len(slow) == 1 and slow[0][-1].text == "missed"
    assert {row[-1].text for row in goals.goals_table(sections, quick=True).rows} == {""}


def test_the_tables_are_drawn_into_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = script("draw_bench")
    document, file = tmp_path / "performance.md", tmp_path / "bench.json"
    document.write_text("before\n<!-- coterie bench -->\nold\n<!-- end -->\nafter\n")
    file.write_text(json.dumps(all_sections()))
    monkeypatch.setattr("sys.argv", ["draw_bench.py", str(file), "--document", str(document)])
    draw.main()
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| PCL | 4.20 | 0.90 to 1.10 | 1.00 |" in text and "commit abc" in text and "| missed |" in text
    for chart in ("bench_methods.svg", "bench_peers.svg"):
        assert "<svg" in (tmp_path / chart).read_text()


def test_a_script_writes_its_section_and_goals_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "floor.json"
    monkeypatch.setattr(harness, "QUICK", TINY)
    monkeypatch.setattr("sys.argv", ["floor.py", "--quick", "-o", str(file)])
    harness.run_script("floor", floor.measure, floor.tables)
    assert set(json.loads(file.read_text())["sections"]) == {"floor"}
    monkeypatch.setattr("sys.argv", ["goals.py", str(file)])
    goals.main()
    assert "PCL step / its convolutions alone" in capsys.readouterr().out


# The floor


def test_the_floor_has_exactly_the_convolutions_of_the_network() -> None:
    network = factory("resnet8", 100, 3)()
    counts = floor.convolutions(network, torch.randn(4, 3, 32, 32))
    calls = {(c.input[1:], c.weight, c.stride[0], c.first): count for c, count in counts.items()}
    assert calls == {
        ((3, 32, 32), (16, 3, 3, 3), 1, True): 1,
        ((16, 32, 32), (16, 16, 3, 3), 1, False): 2,
        ((16, 32, 32), (32, 16, 3, 3), 2, False): 1,
        ((16, 32, 32), (32, 16, 1, 1), 2, False): 1,
        ((32, 16, 16), (32, 32, 3, 3), 1, False): 1,
        ((32, 16, 16), (64, 32, 3, 3), 2, False): 1,
        ((32, 16, 16), (64, 32, 1, 1), 2, False): 1,
        ((64, 8, 8), (64, 64, 3, 3), 1, False): 1,
    }
    assert sum(counts.values()) == sum(isinstance(part, torch.nn.Conv2d) for part in network.modules())


def test_the_floor_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every convolution 1 s forward and 3 s both ways in NCHW, 2 s and 2 s in NHWC: 1 and 2 s at best."""
    seconds = {torch.contiguous_format: (1, 3), torch.channels_last: (2, 2)}
    monkeypatch.setattr(floor, "time_convolution", lambda convolution, layout: seconds[layout])
    section = floor.measure(TINY)
    assert section["Baseline"]["floor_seconds"] == 9 * 2
    assert section["PCL"]["floor_seconds"] == 3 * (9 * 2 + 9 * 1)
    assert section["PCL"]["ratio"] == pytest.approx(section["PCL"]["seconds"] / 81)
    assert section["Baseline"]["seconds"] > 0 and len(section["convolutions"]) == 8


def test_a_convolution_that_was_disturbed_raises_no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of three rounds another one takes a hundred seconds instead of one: in every sum, in no median."""
    calls: Counter[Any] = Counter()
    seen: list[Any] = []

    def timed(convolution: Any, layout: Any) -> tuple[float, float]:
        if convolution not in seen:
            seen.append(convolution)
        turn, calls[convolution, layout] = calls[convolution, layout], calls[convolution, layout] + 1
        return (100, 100) if turn and convolution == seen[turn] else (1, 1)

    monkeypatch.setattr(floor, "time_convolution", timed)
    section = floor.measure(dataclasses.replace(TINY, rounds=3))
    assert section["Baseline"]["floor_seconds"] == 9 and section["PCL"]["floor_seconds"] == 3 * (9 + 9)
    assert section["PCL"]["turns"] == 3


# The parts


def test_the_loss_terms_alone_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the peers' own outputs the terms are the whole method's."""
    method = subjects.build_method("PCL", TINY)
    views, labels = subjects.random_batch(3, TINY)
    monkeypatch.setattr(parts, "random_batch", lambda *_: (views, labels))
    whole = copy.deepcopy(method)(views, labels, subjects.EPOCH)["loss"].item()
    losses: list[float] = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda self: losses.append(self.item()) or backward(self))
    parts.loss_terms(method, TINY)()
    assert losses == [pytest.approx(whole, rel=1e-5)]


def test_the_parts_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times: dict[str, Any] = {}
    monkeypatch.setattr(parts, "time_in_turns", lambda *args: times.update(time_in_turns(*args)) or times)
    section = parts.measure_parts(TINY)
    shares = {name: part["share"] for name, part in section["parts"].items()}
    expected = {name: row["ratio"] for name, row in times.items()}
    for once_an_epoch in ("record", "checkpoint"):
        expected[once_an_epoch] /= 391  # steps of CIFAR
    assert shares == pytest.approx(expected) and all(share > 0 for share in shares.values())
    assert section["other"] == pytest.approx(sum(shares[name] for name in parts.OTHER))
    assert section["parts"]["data"]["turns"] == TINY.rounds
    assert parts.measure_evaluation(TINY)["ratio"] > 0


# Growth and start-up


@pytest.mark.parametrize(
    ("device", "cores", "gpus", "counts"),
    [("cpu", 1, 0, ["1"]), ("cpu", 2, 0, ["1", "2"]), ("cuda", 8, 1, ["1"]), ("cuda", 8, 2, ["1", "2"])],
)
def test_two_processes_where_each_has_a_place_of_its_own(
    device: str, cores: int, gpus: int, counts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "default_device", lambda: torch.device(device))
    monkeypatch.setattr(growth, "cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(growth, "training_rate", lambda size, processes: 30.0 * processes)
    rows = growth.by_processes(TINY)
    assert list(rows) == counts and rows["1"]["speed"] == 1
    assert rows.get("2", {"speed": 2})["speed"] == 2


def test_growth_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "PEERS", (1, 2))
    monkeypatch.setattr(growth, "WIDTHS", (8,))
    monkeypatch.setattr(growth, "by_processes", lambda size: {"1": {"images_per_second": 1, "speed": 1}})
    section = growth.measure(TINY)
    assert list(section["peers"]) == ["1", "2"] and list(section["batch"]) == ["2", "4", "8", "16"]
    assert len(growth.tables(section)) == 4


@pytest.mark.slow
def test_start_up_is_timed_in_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "TURNS", 1)
    section = startup.measure(QUICK)
    train = section["coterie train, to its first step"]["seconds"]
    assert train > section["coterie --help"]["seconds"] > 0


@pytest.mark.slow
def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="no step was taken"):
        harness.run_python(["-c", startup.FIRST_STEP, "--help"])
