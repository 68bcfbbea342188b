"""The loop: schedules as fractions, equal runs of equal seeds, continued runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import coterie
from coterie.metrics.evaluate import evaluate
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet
from tests.helpers.common import small_recipe as recipe


def timeless(run: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in record.items() if k != "time"} for record in RunDirectory(run).metrics()]


def test_the_same_seed_twice_gives_the_same_run(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_recipe(recipe(seed=seed), tmp_path / name)
    a, b, c = (timeless(tmp_path / name) for name in "abc")
    assert a == b != c
    weights = [load_file(tmp_path / name / "student.safetensors") for name in "abc"]
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
    assert not torch.equal(weights[0]["fc.weight"], weights[2]["fc.weight"])


def test_training_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_recipe(recipe(), tmp_path / "whole")
    calls = 0

    def stop(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return evaluate(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr("coterie.training.loop.evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            train_recipe(recipe(), tmp_path / "parts")
    assert len(timeless(tmp_path / "parts")) == 2
    train_recipe(recipe(), tmp_path / "parts")
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")
    whole, parts = (load_file(tmp_path / name / "student.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[k], parts[k]) for k in whole)


def test_scores_against_numpy() -> None:
    net = coterie.PeerNet(lambda: TinyNet(7), 3, "stage3", torch.randn(2, 3, 8, 8)).eval()
    method = coterie.PCL(net)
    with torch.no_grad():
        for peer in net.peers:
            peer.head.weight.mul_(30)
    sets = [(torch.randn(n, 3, 8, 8), torch.randint(7, (n,))) for n in (40, 23)]
    scores = evaluate(method, sets)
    images, y = torch.cat([s[0] for s in sets]), torch.cat([s[1] for s in sets]).numpy()
    z = [peer(images).detach().double().numpy() for peer in net.peers]
    p = [np.exp(a - a.max(1, keepdims=True)) for a in z]
    p = [a / a.sum(1, keepdims=True) for a in p]
    score = scores["predictors"]["peer2"]
    assert score["error"] == pytest.approx(100 * np.mean(z[1].argmax(1) != y))
    top5 = np.argsort(-z[1], axis=1)[:, :5]
    assert score["top5_error"] == pytest.approx(100 * np.mean([y[i] not in top5[i] for i in range(len(y))]))
    assert score["nll"] == pytest.approx(-np.mean(np.log(p[1][np.arange(len(y)), y])), rel=1e-5)
    confidence, right = p[1].max(1), z[1].argmax(1) == y
    ece = 0.0
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if inside.any():
            ece += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert score["ece"] == pytest.approx(ece, rel=1e-4)
    pairs = [(0, 1), (0, 2), (1, 2)]
    distance = np.mean([np.linalg.norm(p[a] - p[b], axis=1).mean() for a, b in pairs])
    assert scores["diversity"]["peer"] == pytest.approx(distance, rel=1e-4)
    agree = np.mean([(z[a].argmax(1) == z[b].argmax(1)).mean() for a, b in pairs])
    assert scores["agreement"]["peer"] == pytest.approx(agree)
    assert set(scores["diversity"]) == {"peer", "mean"}


def test_the_example_of_an_own_loop(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "own_loop.py"
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout.split()[1]) < 8.0  # percent of errors
    assert (tmp_path / "student.pt").is_file()


def test_rarer_evaluations_change_nothing_but_the_records(tmp_path: Path) -> None:
    every = train_recipe(recipe(epochs=5), tmp_path / "every")
    rarely = train_recipe(recipe(epochs=5, evaluate_every=2), tmp_path / "rarely")
    for a, b in zip(every.parameters(), rarely.parameters(), strict=True):
        assert torch.equal(a, b)
    all_records, records = timeless(tmp_path / "every"), timeless(tmp_path / "rarely")
    assert [record["epoch"] for record in records] == [1, 3, 4]
    for record in records:
        same = all_records[int(str(record["epoch"]))]
        assert {k: v for k, v in record.items() if k != "terms"} == {k: v for k, v in same.items() if k != "terms"}
    losses = [record["terms"]["loss"] for record in all_records]  # type: ignore[index]
    means = [record["terms"]["loss"] for record in records]  # type: ignore[index]
    assert means == pytest.approx([(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2, losses[4]])
