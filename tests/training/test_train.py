"""The loop: schedules as fractions, equal runs of equal seeds, continued runs."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import coterie
from coterie.config.options import from_options, parser
from coterie.config.parsing import parse
from coterie.config.recipe import Recipe
from coterie.config.schedule import Cosine, Steps, rate
from coterie.data.sampler import batch_slices
from coterie.errors import InputError
from coterie.metrics.evaluate import evaluate
from coterie.models import factory
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet

SMALL = {
    "model": "resnet8",
    "data": {"class_path": "digits", "init_args": {"limit": 10}},
    "epochs": 4,
    "batch": 32,
}


def recipe(**options: object) -> Recipe:
    return from_options({**SMALL, **options})


def timeless(run: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in record.items() if k != "time"} for record in RunDirectory(run).metrics()]


def test_schedules_are_fractions() -> None:
    steps = Steps()
    for epochs in (300, 30, 7):
        factors = [rate(steps, e, epochs, 0.0) for e in range(epochs)]
        assert [sum(math.isclose(f, x) for f in factors) for x in (1, 0.1, 0.01)] == [
            math.ceil(epochs / 2),
            math.ceil(epochs * 0.75) - math.ceil(epochs / 2),
            epochs - math.ceil(epochs * 0.75),
        ]
    assert [rate(steps, e, 300, 0.0) for e in (149, 150, 224, 225)] == pytest.approx([1, 0.1, 0.1, 0.01])
    imagenet = Steps(at=(1 / 3, 2 / 3))
    assert [rate(imagenet, e, 90, 0.0) for e in (29, 30, 59, 60)] == pytest.approx([1, 0.1, 0.1, 0.01])
    assert rate(Cosine(), 50, 100, 0.0) == pytest.approx(0.5) and rate(Cosine(), 0, 100, 0.0) == 1
    assert rate(Cosine(floor=0.1), 100, 100, 0.0) == pytest.approx(0.1)
    assert [rate(steps, s, 100, 0.1) for s in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])


def test_an_epoch_keeps_every_image_and_leaves_none_alone() -> None:
    for size, batch, expected in [
        (10, 4, [4, 4, 2]),
        (9, 4, [4, 5]),
        (8, 4, [4, 4]),
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
    ]:
        parts = batch_slices(size, batch)
        if batch > 1:
            assert [p.stop - p.start for p in parts] == expected
        assert [i for p in parts for i in range(size)[p]] == list(range(size))
    assert len(batch_slices(50000, 128)) == 391  # the paper's 117,300 steps in 300 epochs


def test_ramp_up_and_horizon_follow_the_length_of_the_training_unless_given() -> None:
    run_recipe = recipe(epochs=30)
    method = run_recipe.build()
    steps = 30 * math.ceil(100 / 32)
    assert isinstance(method, coterie.PCL)
    assert method.ramp_up == pytest.approx(8.0)
    assert method.mean.beta == pytest.approx(1 - 1 / max(1, steps * 1000 / 117300))
    assert run_recipe.resolved == {"method.ramp_up": pytest.approx(8.0), "method.beta": method.mean.beta}
    assert "ramp_up" not in run_recipe.config["method"]["init_args"]  # the options stay as they were set
    method = recipe(epochs=30, method={"class_path": "PCL", "init_args": {"ramp_up": 80, "beta": 0.999}}).build()
    assert (method.ramp_up, method.mean.beta) == (80, 0.999)
    mutual = {"class_path": "PCL", "init_args": {"peer_teacher": "mutual", "beta": 0.5}}
    assert recipe(method=mutual, ema=True).build().mean.beta == 0.5  # also where only --ema keeps averages
    paper = from_options({})  # the defaults are the paper's protocol, at CIFAR's 50,000 images
    steps = paper.epochs * len(batch_slices(50000, paper.batch))
    assert steps == 117300 and 1 - 1 / (paper.ema_horizon * steps) == pytest.approx(0.999)


class Passing(coterie.PCL):
    """A user's own variant, which passes on what it does not know.

    Args:
        net: the peers.
        own: its own option.
    """

    def __init__(self, net: coterie.PeerNet, own: float = 1.0, **options: Any) -> None:
        super().__init__(net, **options)


def test_a_subclass_that_passes_options_on_follows_the_length_too() -> None:
    own, ours = (recipe(epochs=30, method=name).build() for name in ("tests.training.test_train.Passing", "PCL"))
    assert (own.ramp_up, own.mean.beta) == (ours.ramp_up, ours.mean.beta)


def test_the_same_seed_twice_gives_the_same_run(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_recipe(recipe(seed=seed), tmp_path / name)
    a, b, c = (timeless(tmp_path / name) for name in "abc")
    assert a == b != c
    weights = [load_file(tmp_path / name / "student.safetensors") for name in "abc"]
    assert all(torch.equal(weights[0][k], weights[1][k]) for k in weights[0])
    assert not torch.equal(weights[0]["fc.weight"], weights[2]["fc.weight"])


def test_a_run_directory_explains_itself(tmp_path: Path) -> None:
    method = train_recipe(recipe(ema=True, method="Baseline"), tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    records = run.metrics()
    assert [r["epoch"] for r in records] == [0, 1, 2, 3]
    assert set(records[-1]["predictors"]) == {"peer1", "mean1"}
    assert set(records[-1]["predictors"]["peer1"]) >= {"error", "balanced_error", "top5_error", "nll", "ece"}
    assert records[-1]["terms"]["loss"] == pytest.approx(records[-1]["terms"]["ce"])
    assert records[-1]["lr"] == pytest.approx(0.001) and records[0]["lr"] == pytest.approx(0.1)
    config = yaml.safe_load(run.config.read_text())
    assert config["seed"] == 0 and config["optimizer"]["init_args"]["nesterov"] is True
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["torch"] == torch.__version__ and environment["seed"] == 0
    plain = factory("resnet8", 10, 1)()
    plain.load_state_dict(load_file(run.student), strict=True)
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(plain.eval()(images), method.deploy()(images))
    assert torch.allclose(plain(images), method.eval().predictors()["peer1"](images), atol=1e-5)
    torch.load(run.checkpoints.newest, weights_only=True)


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


def test_short_names_mean_our_methods_whatever_else_is_called_so() -> None:
    """torch.export leaves classes called like the exported module's, module and all, in the process."""
    twin = type("PCL", (coterie.PCL,), {"__module__": "coterie.methods.pcl", "__qualname__": "PCL"})
    assert recipe(method="PCL").method_class is coterie.PCL
    assert recipe(method={"class_path": "PCL", "init_args": {"temperature": 2.0}}).method_class is coterie.PCL
    train_parser = parser()
    assert parse(train_parser, ["--method", "PCL"]).method.class_path == "coterie.PCL"
    assert parse(train_parser, ["--method=PCL"]).method.class_path == "coterie.PCL"
    del twin
    gc.collect()  # for the tests that follow


def test_a_run_from_before_an_option_existed_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_recipe(recipe(epochs=1), out)
    old = yaml.safe_load((out / "config.yaml").read_text())
    del old["evaluate_every"]
    (out / "config.yaml").write_text(yaml.safe_dump(old))
    train_recipe(recipe(epochs=1), out)  # the option's default is what that run had
    (out / "config.yaml").write_text(yaml.safe_dump(old))
    with pytest.raises(InputError, match="evaluate_every was 1, is 2"):
        train_recipe(recipe(epochs=1, evaluate_every=2), out)


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        (["--compile"], True),
        (["--compile", "--ema"], True),
        (["--compile", "reduce-overhead"], "reduce-overhead"),
        (["--compile=false"], False),
        (["--compile", "no"], False),
        (["--ema", "--seed", "1"], False),
    ],
)
def test_a_switch_may_stand_alone(words: list[str], compiled: bool | str) -> None:
    config = parse(parser(), words)
    assert config.compile == compiled and config.ema == ("--ema" in words)


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
