"""The report: what evaluation.json holds, against independent computations; and the report only reads."""

from __future__ import annotations

import base64
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from coterie.config.options import from_options
from coterie.data.digits import digits
from coterie.methods import available
from coterie.metrics.seeds import NOTHING
from coterie.peers.cost import macs, training_macs
from coterie.peers.net import PeerNet
from coterie.report import page
from coterie.report.evaluation import read_evaluation
from coterie.runs.evaluate_run import evaluate_run
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet, coterie, printed
from tests.helpers.report import EVIL, OPTIONS, Page, hostile, over_seeds, records


def test_cost_is_four_fold_and_its_curves_follow(trained: Path, shown: Page) -> None:
    method = from_options({**OPTIONS, "data": {"class_path": "digits"}, "method": "Baseline"}).build()
    one = macs(method.net.peers[0], (1, 8, 8))
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
    train_recipe(from_options({**small, "method": "Baseline", "model": "resnet14"}), teacher)
    kd = {"class_path": "KD", "init_args": {"teacher": str(teacher)}}
    for name, method in (("Baseline", "Baseline"), ("KD", kd)):
        train_recipe(from_options({**small, "method": method, "model": "resnet8"}), out / name)
    page.write_report([out], tmp_path / "r.html", "t")
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
    pcl, baseline = (read_evaluation(trained / name) for name in ("PCL-0", "Baseline-0"))
    assert pcl.plain_macs == baseline.step_macs == baseline.plain_macs
    page.write_report([tmp_path / "runs"], tmp_path / "r.html", "t")
    assert "4.0 times the computation of the plain network" in (tmp_path / "r.html").read_text()


def test_the_evaluation_agrees_with_the_record_and_with_a_plain_forward_pass(trained: Path) -> None:
    kept = json.loads((trained / "PCL-0" / "evaluation.json").read_text())
    last = records(trained / "PCL-0")[-1]
    assert (
        kept["epochs"] == 3 and kept["split"] == last["split"] == "test" and kept["deployed"] == last["deployed"]
    )
    for name, scores in last["predictors"].items():
        assert {key: kept["predictors"][name][key] for key in scores} == pytest.approx(scores)
    for key in ("diversity", "agreement"):
        assert kept[key] == pytest.approx(last[key])
    recipe = from_options({**OPTIONS, "data": {"class_path": "digits", "init_args": {"limit": 10}}})
    method = recipe.build()
    method.load_state_dict(torch.load(trained / "PCL-0" / "checkpoint.pt", weights_only=True)["method"])
    images, labels = next(recipe.data.test_batches(10_000))
    shown = read_evaluation(trained / "PCL-0")
    assert shown.tested == sum(n for _, _, n in shown.bins) == len(labels)
    ece = sum(abs(c - a) * n for c, a, n in shown.bins) / len(labels)
    assert ece == pytest.approx(last["predictors"]["mean1"]["ece"], abs=1e-6)
    with torch.no_grad():
        p = method.deploy()(images).softmax(1)
    guess = p.argmax(1)
    for entry in shown.classes:
        c = 0 if entry["class"] == EVIL else int(entry["class"])
        missed = (guess[labels == c] != c).float().mean().item()
        assert entry["images"] == int((labels == c).sum()) and entry["error"] == pytest.approx(
            100 * missed, abs=1e-4
        )
    assert [c["error"] for c in shown.classes] == sorted((c["error"] for c in shown.classes), reverse=True)
    sure, order = p.amax(1).where(guess != labels, 0).sort(descending=True)
    assert [m["image"] for m in kept["mistakes"]] == order[:12].tolist()
    assert [m["confidence"] for m in kept["mistakes"]] == pytest.approx(sure[:12].tolist(), abs=1e-5)
    assert [m["guess"].replace(EVIL, "0") for m in kept["mistakes"]] == [str(int(guess[i])) for i in order[:12]]
    assert shown.networks["mean1"].parameters == 77754 and shown.networks["ensemble"].parameters > 77754


def test_pictures_show_the_pixels_of_the_data(trained: Path) -> None:
    pixels = digits().read()[2]
    for mistake in json.loads((trained / "PCL-0" / "evaluation.json").read_text())["mistakes"]:
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(mistake["png"]))))
        assert np.array_equal(picture, pixels[mistake["image"], 0])


def test_measured_costs_are_shown(copied: Path, tmp_path: Path) -> None:
    speed = {"latency_ms": 2.0, "images_per_second": 5000.0}
    plain = {"parameters": 100, "macs": 2000, "bytes": 400, "torch": speed}
    slower = {"latency_ms": 3.0, "images_per_second": 2500.0}
    costs = {"plain": plain, "student": plain, "ensemble": {**plain, "parameters": 220, "torch": slower}}
    (copied / "PCL-0" / "costs.json").write_text(json.dumps(costs))
    (copied / "Baseline-0" / "costs.json").write_text("{")  # damaged: left out
    page.write_report([copied], tmp_path / "r.html", "t")
    title = "Plain network, student and ensemble, resnet8 on hostile"
    head, *rows = Page((tmp_path / "r.html").read_text()).tables[title]
    table_rows = [dict(zip((c[0] for c in head), (c[0] for c in row), strict=True)) for row in rows]
    assert [row["network"] for row in table_rows] == ["plain", "student", "ensemble"]
    assert table_rows[2]["parameters"] == "220" and table_rows[2]["torch, × plain"] == "1.50"
    assert table_rows[2]["torch, images/s in batches of 64"] == "2,500"
    assert table_rows[2]["ONNX Runtime, ms for 1 image"] == table_rows[0]["ONNX Runtime, × plain"] == NOTHING


def test_an_evaluation_of_other_weights_is_named(copied: Path, tmp_path: Path) -> None:
    shutil.copyfile(copied / "PCL-1" / "evaluation.json", copied / "PCL-0" / "evaluation.json")
    page.write_report([copied / "PCL-0"], tmp_path / "r.html", "t")
    here, there = (records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (1, 0))
    said = f"its evaluation.json has an error of {here:.2f} %, its record {there:.2f} %"
    assert said in Page((tmp_path / "r.html").read_text()).text


def folder(root: Path) -> None:
    """Pictures of two classes, four to train on and two to test on of each."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 2)):
        for name in ("church", "tench"):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (20, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")


class sealed(digits):
    """Digits whose test images must not be looked at."""

    def test_batches(self, size: int, part: slice = slice(None), split: Any = "test", device: Any = "cpu") -> Any:
        assert split == "val", "the test images were looked at"
        return super().test_batches(size, part, split, device)


def test_a_run_that_holds_images_out_is_judged_on_these_alone(tmp_path: Path) -> None:
    data = {
        "class_path": "tests.report.test_report_evaluation.sealed",
        "init_args": {"limit": 20, "val_fraction": 0.3},
    }
    recipe = from_options({**OPTIONS, "epochs": 1, "data": data, "method": "Baseline"})
    train_recipe(recipe, tmp_path / "run")
    kept = read_evaluation(tmp_path / "run")
    assert kept.tested == recipe.data.eval_size == 60
    assert kept.error == pytest.approx(records(tmp_path / "run")[-1]["predictors"]["peer1"]["error"])
    page.write_report([tmp_path / "run"], tmp_path / "r.html")
    said = Page((tmp_path / "r.html").read_text()).text
    assert "of the held-out images" in said and "peer1, 60 held-out images." in said
    assert "Of the images the run held out." in said and "Errors are on the images a run held out;" in said
    assert "test images." not in said.replace("`coterie evaluate` looks at the test images.", "")


def test_the_report_of_a_folder_run_needs_no_data_and_ends(tmp_path: Path) -> None:
    """With worker processes in its recipe, and after its images and weights are gone."""
    folder(tmp_path / "images")
    options = ["--data", "folder", "--data.root", tmp_path / "images", "--data.size", 16, "--data.workers", 2]
    options += ["--method", "Baseline", "--model", "resnet8", "--epochs", 1, "--batch", 4]
    _, messages = printed("train", *options, "--out", tmp_path / "run")
    warnings = [line for line in messages.splitlines() if "warning" in line]
    few_images = ("batch-norm sees 4 images", "fewer than 5 training images", "chance level")
    assert all(any(w in line for w in few_images) for line in warnings), messages
    shutil.rmtree(tmp_path / "images")
    for file in (tmp_path / "run").glob("*.[ps][ta]*"):
        file.unlink()
    done = coterie("report", tmp_path / "run", "-o", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    shown = Page((tmp_path / "r.html").read_text())
    assert "no evaluation.json" not in shown.text and "Expected calibration error" in shown.text
    assert shown.column("Cost of training", "MACs per image and step")[0][1]


def test_a_report_builds_nothing(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("coterie.config.recipe.Recipe.build", "torch.load", "torch.nn.Module.__init__"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("a report only reads"))
    monkeypatch.setattr(hostile, "load", lambda self: pytest.fail("a report only reads"))
    page.write_report([copied], tmp_path / "r.html")
    assert "Most confident mistakes: PCL" in Page((tmp_path / "r.html").read_text()).text


def test_evaluate_writes_what_the_training_wrote(copied: Path, tmp_path: Path) -> None:
    file = copied / "PCL-0" / "evaluation.json"
    before = json.loads(file.read_text())
    file.unlink()
    page.write_report([copied], tmp_path / "r.html")
    text = Page((tmp_path / "r.html").read_text()).text
    assert "PCL-0 has no evaluation.json" not in text  # another seed of the recipe has one
    evaluate_run(copied / "PCL-0", hostile())
    assert not file.exists()  # that was about other data
    evaluate_run(copied / "PCL-0")
    after = json.loads(file.read_text())
    assert after.keys() == before.keys() and after["training_macs"] == before["training_macs"]
    for name, scores in before["predictors"].items():
        assert after["predictors"][name].keys() == scores.keys()
        numbers = ("error", "balanced_error", "top5_error", "nll", "ece", "brier", "parameters", "macs")
        assert [after["predictors"][name][n] for n in numbers] == pytest.approx([scores[n] for n in numbers], 1e-5)
    assert [m["image"] for m in after["mistakes"]] == [m["image"] for m in before["mistakes"]]


def test_a_failure_to_evaluate_does_not_lose_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr("coterie.runs.evaluate_run.training_macs", fail)
    data = {"class_path": "digits", "init_args": {"limit": 8}}
    train_recipe(from_options({**OPTIONS, "epochs": 1, "data": data, "method": "Baseline"}), tmp_path / "run")
    assert "evaluation.json could not be written (MemoryError: too large)" in capsys.readouterr().err
    assert (tmp_path / "run" / "student.safetensors").is_file() and len(records(tmp_path / "run")) == 1
    assert not (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.parametrize("name", ["evaluation.json", "costs.json", "protocol.json"])
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_and_nestings_that_no_program_writes_are_left_out(
    nested: bool, name: str, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained / "Baseline-0", run := tmp_path / "run")
    content = json.loads((run / "evaluation.json").read_text())
    text = "[" * 100_000 if nested else json.dumps({**content, "images": math.inf, "plain": {}, "protocol": []})
    (run / name).write_text(text)
    printed("report", run, "-o", tmp_path / "r.html")
    assert bool(read_evaluation(run).networks) == (name != "evaluation.json")
