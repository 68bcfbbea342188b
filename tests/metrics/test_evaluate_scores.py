"""Scores against their formulas, calibration against a search, another test set, costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import coterie
from coterie.data.digits import digits
from coterie.deploy.latency import measure_costs
from coterie.errors import InputError
from coterie.metrics.calibration import halves, temperature
from coterie.metrics.evaluate import Scores, evaluate
from coterie.peers.cost import interleaved
from coterie.peers.net import PeerNet
from coterie.runs.evaluate_run import evaluate_run
from coterie.runs.rebuild import restored
from tests.helpers.common import TinyNet, printed


def test_brier_is_the_squared_distance_to_the_label() -> None:
    logits, labels = 3 * torch.randn(50, 7), torch.randint(0, 7, (50,))
    scores = Scores()
    scores.add(logits[:20], labels[:20])
    scores.add(logits[20:], labels[20:])
    expected = (logits.softmax(1) - F.one_hot(labels, 7)).square().sum(1).mean()
    assert scores.result()["brier"] == pytest.approx(expected.item(), rel=1e-5)
    certain = Scores()
    certain.add(torch.tensor([[100.0, 0.0], [100.0, 0.0]]), torch.tensor([0, 1]))
    assert certain.result()["brier"] == pytest.approx(1.0)  # (0 + 2) / 2


def _balanced_error(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """By NumPy, class after class."""
    guesses, y = logits.detach().numpy().argmax(1), labels.numpy()
    return float(np.mean([100 * np.mean(guesses[y == c] != c) for c in np.unique(y)]))


def test_every_class_counts_the_same_in_the_balanced_error() -> None:
    """Ninety images of one class, eight and two of others, none of the fourth."""
    labels = torch.tensor([0] * 90 + [1] * 8 + [3] * 2)[torch.randperm(100)]
    logits = torch.randn(100, 4) + 3 * F.one_hot(torch.zeros_like(labels), 4)  # it says 0 most of the time
    scores = Scores()
    for part in (slice(0, 1), slice(1, 60), slice(60, 100)):
        scores.add(logits[part], labels[part])
    result = scores.result()
    assert result["balanced_error"] == pytest.approx(_balanced_error(logits, labels))
    assert result["balanced_error"] > 2 * result["error"] and "pairs" not in scores.sums
    even = Scores()
    even.add(logits, torch.arange(100) % 4)
    assert even.result()["balanced_error"] == pytest.approx(even.result()["error"])


def test_the_balanced_error_of_parts_that_two_processes_counted() -> None:
    method = coterie.PCL(PeerNet(TinyNet, 2, "stage3", torch.randn(2, 3, 8, 8))).eval()
    images, labels = torch.randn(40, 3, 8, 8), torch.tensor([0] * 30 + [1] * 7 + [4] * 3)
    halves_ = [(images[:31], labels[:31]), (images[31:], labels[31:])]  # the first one has two classes alone
    counted: list[Any] = []
    for half in halves_:
        evaluate(method, [half], gather=lambda mine: [counted.append(mine), mine][1:])
    scored = evaluate(method, [halves_[0]], gather=lambda mine: counted)["predictors"]
    for name, logits in method.logits(images).items():
        assert scored[name]["balanced_error"] == pytest.approx(_balanced_error(logits, labels)), name
        assert scored[name]["error"] == pytest.approx(100 * (logits.argmax(1) != labels).double().mean().item())


def test_the_table_of_classes() -> None:
    guesses, labels = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 2, 2])
    scores = Scores(per_class=True)
    scores.add(F.one_hot(guesses, 4).float(), labels)
    a, b, c, d = scores.per_class(["a", "b", "c", "d"])
    assert a == {"class": "a", "images": 3, "error": pytest.approx(100 / 3), "false": 0.0, "taken_for": "b"}
    assert b == {"class": "b", "images": 1, "error": 0.0, "false": pytest.approx(200 / 3), "taken_for": None}
    assert c["error"] == 50 and c["taken_for"] == "b"
    assert d == {"class": "d", "images": 0, "error": None, "false": None, "taken_for": None}


@pytest.mark.parametrize("factor", [0.2, 1.0, 6.0])
def test_the_temperature_is_the_best_one(factor: float) -> None:
    """Labels drawn from softmax(z): logits that are `factor` too large need a temperature of about `factor`."""
    z = 2 * torch.randn(5000, 5)
    labels = torch.multinomial(z.softmax(1), 1)[:, 0]
    fitted = temperature(z * factor, labels)
    assert fitted == pytest.approx(factor, rel=0.1)
    grid = np.geomspace(factor / 1.3, factor * 1.3, 201)
    losses = [F.cross_entropy(z * factor / t, labels).item() for t in grid]
    assert fitted == pytest.approx(grid[int(np.argmin(losses))], rel=3e-3)


def test_the_halves_are_disjoint_and_complete() -> None:
    fit, report = halves(797)
    assert sorted([*fit.tolist(), *report.tolist()]) == list(range(797))
    with pytest.raises(InputError, match="held-out"):
        halves(1)  # nothing would be left to report on


def test_evaluate_shows_all_of_it(pcl_run: Path) -> None:
    arguments = ["evaluate", pcl_run, "--calibrate", "--data", "digits", "--data.limit", 7]
    result = json.loads(printed(*arguments, "--json")[0])
    text = " ".join(printed(*arguments)[0].split())
    assert "class by class" in text and "Fit on every second test image" in text
    student = result["predictors"]["mean1"]
    table = student["per_class"]
    images = sum(row["images"] for row in table)
    missed = sum(row["images"] * row["error"] / 100 for row in table)
    assert student["error"] == pytest.approx(100 * missed / images)
    assert student["balanced_error"] == pytest.approx(np.mean([row["error"] for row in table]))
    assert f"{student['error']:.2f} │ {student['balanced_error']:.2f} │" in text and "balanced error %" in text
    stored = json.loads((pcl_run / "metrics.jsonl").read_text().splitlines()[-1])["predictors"]["mean1"]
    assert student["error"] == stored["error"] and stored["brier"] == pytest.approx(student["brier"])
    calibrated = student["calibrated"]
    # The temperature from scratch, on the other half of the test images.
    recipe, method, _ = restored(pcl_run)
    batches = list(recipe.data.test_batches(1000))
    x, y = torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])
    with torch.no_grad():
        z = method.deploy()(x)
    t = temperature(z[::2], y[::2])
    assert calibrated["temperature"] == pytest.approx(t, rel=1e-3)
    assert calibrated["before"]["nll"] == pytest.approx(F.cross_entropy(z[1::2], y[1::2]).item(), rel=1e-4)
    assert calibrated["after"]["nll"] == pytest.approx(F.cross_entropy(z[1::2] / t, y[1::2]).item(), rel=1e-4)
    assert calibrated["after"]["error"] == calibrated["before"]["error"]  # no label changes


class Letters(digits):
    """Digits under other names."""

    def load(self) -> None:
        super().load()
        self.classes = list("abcdefghij")


class Larger(digits):
    def load(self) -> None:
        super().load()
        self.shape = (1, 9, 9)


def test_another_set_must_have_the_same_classes_and_shape(pcl_run: Path) -> None:
    with pytest.raises(InputError, match="Letters has other classes than the run's digits: a, b, c and 7 more"):
        evaluate_run(pcl_run, Letters())
    with pytest.raises(InputError, match="images of 1x9x9, but the run was trained on 1x8x8"):
        evaluate_run(pcl_run, Larger())


@pytest.mark.slow
def test_the_student_costs_what_the_plain_network_costs(pcl_run: Path) -> None:
    recipe, method, _ = restored(pcl_run)
    costs = measure_costs(recipe, method, seconds=0.02)
    plain, student, ensemble = costs["plain"], costs["student"], costs["ensemble"]
    for key in ("parameters", "macs", "bytes"):
        assert student[key] == plain[key] < ensemble[key] < 3 * plain[key]
    for runtime in ("torch", "onnx"):
        assert all(
            row[runtime]["latency_ms"] > 0 and row[runtime]["images_per_second"] > 0 for row in costs.values()
        )


def test_interleaved_runs_take_turns() -> None:
    calls: list[str] = []
    times = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.01)
    assert set(times) == {"a", "b"} and calls[:6] == ["a"] * 3 + ["b"] * 3
    assert calls[6:10] == ["a", "b", "b", "a"] and calls[6:].count("a") == calls[6:].count("b") >= 5
