"""The report: what is computed from the networks themselves, against independent computations."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.config.options import from_options
from coterie.data.digits import digits
from coterie.methods import available
from coterie.metrics.seeds import NOTHING
from coterie.peers.cost import macs, training_macs
from coterie.peers.net import PeerNet
from coterie.report import examine, page
from coterie.runs import reader as runs
from coterie.training.loop import train
from tests.helpers.common import TinyNet
from tests.helpers.report import EVIL, OPTIONS, Page, hostile, over_seeds, records


def test_cost_is_four_fold_and_its_curves_follow(trained: Path, shown: Page) -> None:
    made = from_options({**OPTIONS, "data": {"class_path": "digits"}, "method": "Baseline"}).build()
    one = macs(made.net.peers[0], (1, 8, 8))
    classifier = 3 * 64 * 10  # the ensemble's: three features of 64 to ten classes
    plain = 3 * one - 64 * 9 * 16  # nothing needs the gradient of the images: the stem has two passes
    steps = [plain, 3 * plain + 3 * one + 3 * classifier]
    assert [v for _, v in shown.column("Cost of training", "MACs per image and step")] == steps
    assert shown.column("Cost of training", "× Baseline")[1][0] == "4.01"
    totals = [v for _, v in shown.column("Cost of training", "MACs in all")]
    assert totals == [step * 100 * 3 for step in steps]
    x, _ = shown.lines["Error over computation, resnet8 on hostile"]["PCL"]
    assert x == pytest.approx([steps[1] * 100 * e for e in (1, 2, 3)], rel=1e-5)
    clock = over_seeds(trained, "PCL", lambda r: r["time"]["train"]).cumsum(1).mean(0)
    x, _ = shown.lines["Error over time, resnet8 on hostile"]["PCL"]
    assert x == pytest.approx(clock, rel=1e-5)
    assert shown.column("Cost of training", "seconds")[1][1] == pytest.approx(clock[-1])


@pytest.mark.parametrize("views, trunk_runs", [(3, 3), (1, 1)])
def test_training_macs_against_the_arithmetic_of_the_modules(views: int, trunk_runs: int) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example=torch.randn(2, 3, 8, 8))
    method = available()["PCL"](net, input_augmentation=views == 3)
    trunk = 64 * 27 * 8 + 64 * 72 * 8 + 16 * 72 * 16  # stem, stage1, stage2 (stride 2)
    branch, ensemble = 16 * 144 * 16 + 16 * 5, 48 * 5
    forward = trunk_runs * trunk + 3 * branch
    images = trunk_runs * 64 * 27 * 8  # the gradient of the images, which nothing needs
    assert training_macs(method, (3, 8, 8), method.views, 5) == 3 * (forward + ensemble) - images + forward


@pytest.mark.parametrize("name, options, steps", [("ONE", {}, 1.7), ("DML", {}, 3), ("PCL", {}, 4),
                                                  ("PCL", {"input_augmentation": False}, 2.2)])  # fmt: skip
def test_training_costs_what_the_specification_says(name: str, options: dict[str, Any], steps: float) -> None:
    """In steps of the plain network, rounded to a tenth; ResNet-32's trunk is two thirds of it."""
    recipe = from_options({"method": {"class_path": name, "init_args": options}, "model": "resnet32", "epochs": 1})
    method = recipe.build()
    plain = 3 * macs(method.net.peers[0], recipe.data.shape)
    assert round(training_macs(method, recipe.data.shape, method.views, 10) / plain, 1) == steps


def test_the_price_of_kd_has_its_teachers_forward_pass(tmp_path: Path) -> None:
    small = {"data": {"class_path": "digits", "init_args": {"limit": 8}}, "epochs": 1, "batch": 40}
    teacher, out = tmp_path / "teacher", tmp_path / "runs"
    train(from_options({**small, "method": "Baseline", "model": "resnet14"}), teacher)
    kd = {"class_path": "KD", "init_args": {"teacher": str(teacher)}}
    for name, method in (("Baseline", "Baseline"), ("KD", kd)):
        train(from_options({**small, "method": method, "model": "resnet8"}), out / name)
    page.write([out], tmp_path / "r.html", "t")
    shown = Page((tmp_path / "r.html").read_text())
    names = [name for name, _ in shown.column("Cost of training", "method")]
    steps = [value for _, value in shown.column("Cost of training", "MACs per image and step")]
    cost = dict(zip(names, steps, strict=True))
    # 64, 16 and 4 pixels: resnet14 has one block more than resnet8 in each stage, two 3x3 convolutions
    more = 64 * 2 * 144 * 16 + 16 * 2 * 288 * 32 + 4 * 2 * 576 * 64
    student = (cost["Baseline"] + 64 * 9 * 16) / 3
    assert cost["KD"] - cost["Baseline"] == student + more
    ratios = [text for text, _ in shown.column("Cost of training", "× Baseline")]
    assert dict(zip(names, ratios, strict=True))["KD"] == f"{1 + (student + more) / cost['Baseline']:.2f}"


def test_without_a_baseline_the_price_is_that_of_the_network_alone(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "PCL-0", tmp_path / "runs" / "PCL-0")
    found = examine.examine(runs.read(tmp_path / "runs" / "PCL-0"), weights=False)
    baseline = examine.examine(runs.read(trained / "Baseline-0"), weights=False)
    assert found.plain_macs == baseline.step_macs == baseline.plain_macs
    page.write([tmp_path / "runs"], tmp_path / "r.html", "t")
    assert "4.0 times the computation of the plain network" in (tmp_path / "r.html").read_text()


def test_examination_agrees_with_the_record_and_with_a_plain_forward_pass(trained: Path) -> None:
    run = runs.read(trained / "PCL-0")
    found = examine.examine(run, weights=True)
    assert not found.missing
    recorded = run.last["predictors"]["mean1"]
    assert found.error == pytest.approx(recorded["error"])
    recipe = from_options({**OPTIONS, "data": {"class_path": "digits", "init_args": {"limit": 10}}})
    method = recipe.build()
    method.load_state_dict(torch.load(trained / "PCL-0" / "checkpoint.pt", weights_only=True)["method"])
    images, labels = next(recipe.data.test_batches(10_000))
    assert found.tested == sum(n for _, _, n in found.bins) == len(labels)
    ece = sum(abs(c - a) * n for c, a, n in found.bins) / len(labels)
    assert ece == pytest.approx(recorded["ece"], abs=1e-6)
    with torch.no_grad():
        p = method.deploy()(images).softmax(1)
    guess = p.argmax(1)
    for entry in found.classes:
        c = 0 if entry["class"] == EVIL else int(entry["class"])
        missed = (guess[labels == c] != c).float().mean().item()
        assert entry["images"] == int((labels == c).sum()) and entry["error"] == pytest.approx(
            100 * missed, abs=1e-4
        )
    assert [c["error"] for c in found.classes] == sorted((c["error"] for c in found.classes), reverse=True)
    sure = p.amax(1)[guess != labels].sort(descending=True).values[:12]
    said = [float(re.search(r"\((.*) %\)$", m.caption)[1]) for m in found.mistakes]  # type: ignore[index]
    assert said == pytest.approx((100 * sure).tolist(), abs=0.06)
    assert [len(views) for views in found.views] == [3, 3, 3]
    assert found.networks["mean1"].parameters == 77754 and found.networks["ensemble"].parameters > 77754


def test_measured_costs_are_shown(copied: Path, tmp_path: Path) -> None:
    speed = {"latency_ms": 2.0, "images_per_second": 5000.0}
    plain = {"parameters": 100, "macs": 2000, "bytes": 400, "torch": speed}
    slower = {"latency_ms": 3.0, "images_per_second": 2500.0}
    costs = {"plain": plain, "student": plain, "ensemble": {**plain, "parameters": 220, "torch": slower}}
    (copied / "PCL-0" / "costs.json").write_text(json.dumps(costs))
    (copied / "Baseline-0" / "costs.json").write_text("{")  # damaged: left out
    page.write([copied], tmp_path / "r.html", "t")
    title = "Plain network, student and ensemble, resnet8 on hostile"
    head, *rows = Page((tmp_path / "r.html").read_text()).tables[title]
    found = [dict(zip((c[0] for c in head), (c[0] for c in row), strict=True)) for row in rows]
    assert [row["network"] for row in found] == ["plain", "student", "ensemble"]
    assert found[2]["parameters"] == "220" and found[2]["torch, × plain"] == "1.50"
    assert found[2]["torch, images/s in batches of 64"] == "2,500"
    assert found[2]["ONNX Runtime, ms for 1 image"] == found[0]["ONNX Runtime, × plain"] == NOTHING


def test_pictures_show_the_pixels_of_the_data(trained: Path) -> None:
    import base64

    from PIL import Image

    data = digits()
    data.load()
    image, _ = next(data.test_batches(1))
    source = examine.picture(image[0], data)
    got = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
    assert np.array_equal(got, data.read()[2][0, 0])


def test_weights_that_err_otherwise_than_recorded_are_named(copied: Path, tmp_path: Path) -> None:
    shutil.copyfile(copied / "PCL-1" / "checkpoint.pt", copied / "PCL-0" / "checkpoint.pt")
    page.write([copied / "PCL-0"], tmp_path / "r.html", "t")
    here, there = (records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (1, 0))
    said = f"its weights err on {here:.2f} % here, its record says {there:.2f} %"
    assert said in Page((tmp_path / "r.html").read_text()).text


class sealed(digits):
    """Digits whose test images must not be looked at."""

    def test_batches(self, size: int, part: slice = slice(None), split: Any = "test", device: Any = "cpu") -> Any:
        assert split == "val", "the test images were looked at"
        return super().test_batches(size, part, split, device)


def test_a_run_that_holds_images_out_is_judged_on_these_alone(tmp_path: Path) -> None:
    data = {
        "class_path": "tests.report.test_report_weights.sealed",
        "init_args": {"limit": 20, "val_fraction": 0.3},
    }
    recipe = from_options({**OPTIONS, "epochs": 1, "data": data, "method": "Baseline"})
    train(recipe, tmp_path / "run")
    found = examine.examine(runs.read(tmp_path / "run"), weights=True)
    assert not found.missing and found.tested == recipe.data.eval_size == 60
    assert found.error == pytest.approx(records(tmp_path / "run")[-1]["predictors"]["peer1"]["error"])
    page.write([tmp_path / "run"], tmp_path / "r.html")
    said = Page((tmp_path / "r.html").read_text()).text
    assert "of the held-out images" in said and "peer1, 60 held-out images." in said
    assert "Of the images the run held out." in said and "Errors are on the images a run held out;" in said
    assert "test images." not in said.replace("`coterie evaluate` looks at the test images.", "")


def test_data_that_runs_share_is_read_once(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    load = hostile.load
    monkeypatch.setattr(hostile, "load", lambda self: (read.append(1), load(self))[1])
    for name in ("Baseline-0", "Baseline-1", "PCL-0"):
        assert not examine.examine(runs.read(copied / name), weights=False).missing
    assert len(read) <= 1
