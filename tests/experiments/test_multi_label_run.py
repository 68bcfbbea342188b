"""Several labels an image from the table to the prediction: train, continue, evaluate, export, predict, report."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

import coterie
from coterie.errors import InputError
from coterie.methods.losses import distil_loss, total
from coterie.models.metadata import read_metadata
from tests.helpers.common import build_once, printed, refused
from tests.helpers.engine import add_plain, ended, fork_ranks
from tests.helpers.reference import sigmoid
from tests.helpers.several_labels import COLOURS, write_pictures

OPTIONS = [
    "--data.size",
    16,
    "--data.workers",
    0,
    "--model",
    "resnet8",
    "--epochs",
    4,
    "--batch",
    12,
    "--peers",
    2,
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table and a PCL run on it."""

    def build(folder: Path) -> None:
        table = write_pictures(folder / "set")
        smooth = ["--mix", "MixUp", "--label_smoothing", 0.05, "--class_weights", "balanced"]
        printed("train", "--data", table, *OPTIONS, *smooth, "--method", "PCL", "--out", folder / "run")

    return build_once(tmp_path_factory, "several-labels", build)


def last(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return record


def test_training_learns_and_records_its_scores(run: Path) -> None:
    record = last(run / "run")
    scores = record["predictors"]["mean1"]
    assert scores["map"] > 75 and scores["error"] == pytest.approx(100 - scores["map"])
    assert set(scores) == {"error", "map", "macro_f1", "micro_f1", "nll", "ece", "brier"}
    assert 0 < record["agreement"]["peer"] <= 1 and record["split"] == "val"
    assert json.loads((run / "run" / "resolved.json").read_text())["task"] == "multi_label"


def test_predictions_are_the_labels_above_the_thresholds(run: Path, tmp_path: Path) -> None:
    """In ONNX, in CSV and JSON: sigmoids of the student's own logits, compared with the file's thresholds."""
    file = tmp_path / "student.onnx"
    out, _ = printed("export", run / "run", "-o", file)
    assert "labels are the classes above their thresholds: fitted on 16 held-out images" in out
    about = read_metadata(run / "run" / "student.safetensors")
    assert about is not None and about.task == "multi_label" and about.thresholds is not None
    assert len(about.thresholds) == 3 and about.thresholds_from == "16 held-out images"
    data = coterie.load(run / "run")._read().config["data"]["init_args"]
    student = coterie.load(run / "run").student()
    from coterie.data.table import table

    images = table(**{**data, "workers": 0})
    images.load()
    ((pixels, labels),) = images.test_batches(100)
    with torch.no_grad():
        p = sigmoid(student(pixels).double().numpy())
    files = [images.name("test", i) for i in range(16)]
    rows = json.loads(printed("predict", file, *files, "--json")[0])
    for i, row in enumerate(rows):
        above = {images.classes[c]: p[i, c] for c in range(3) if p[i, c] > about.thresholds[c]}
        assert {label["label"]: label["probability"] for label in row["labels"]} == pytest.approx(above, abs=1e-4)
        listed = [label["probability"] for label in row["labels"]]
        assert listed == sorted(listed, reverse=True)
    assert [
        row["labels"]
        for row in json.loads(printed("predict", run / "run" / "student.safetensors", *files[:2], "--json")[0])
    ] == [
        [
            {"label": label["label"], "probability": pytest.approx(label["probability"], abs=1e-4)}
            for label in row["labels"]
        ]
        for row in rows[:2]
    ]
    named = list(csv.DictReader(io.StringIO(printed("predict", file, *files, "--csv")[0])))
    assert [row["labels"] for row in named] == [
        ";".join(label["label"] for label in row["labels"]) for row in rows
    ]
    assert "leave out --top" in refused("predict", file, files[0], "--top", 2)
    assert len(labels) == 16 and set(images.classes) == set(COLOURS)


def test_a_threshold_that_nothing_reaches_gives_no_label(run: Path, tmp_path: Path) -> None:
    from coterie.models.metadata import encode_weights

    source = run / "run" / "student.safetensors"
    about = read_metadata(source)
    assert about is not None
    about.thresholds = [1.0, 1.0, 1.0]
    (tmp_path / "m.safetensors").write_bytes(encode_weights(load_file(source), about))
    out, _ = printed("predict", tmp_path / "m.safetensors", run / "set" / "test0.png")
    assert out.strip().endswith("no label")
    about.thresholds = [0.5, 2.0, 0.5]
    (tmp_path / "m.safetensors").write_bytes(encode_weights(load_file(source), about))
    assert "its thresholds cannot be right" in refused("predict", tmp_path / "m.safetensors", run)


def test_calibration_keeps_the_decisions(run: Path, tmp_path: Path) -> None:
    plain, calibrated = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    printed("export", run / "run", "-o", plain)
    printed("export", run / "run", "-o", calibrated, "--calibrate")
    about = read_metadata(calibrated)
    assert about is not None and about.temperature != 1
    answers = [json.loads(printed("predict", file, run / "set", "--json")[0]) for file in (plain, calibrated)]
    names = [[[label["label"] for label in row["labels"]] for row in rows] for rows in answers]
    assert names[0] == names[1] and any(len(row) > 1 for row in names[0])
    card = (tmp_path / "b.safetensors.md").read_text()
    assert (
        "sigmoid" in card and "softmax" not in card and "mAP" in card and "the highest F1 on 16 held-out" in card
    )


def test_the_ensemble_and_int8_are_exported_too(run: Path, tmp_path: Path) -> None:
    printed("export", run / "run", "--predictor", "ensemble", "-o", tmp_path / "e.onnx")
    row = json.loads(printed("predict", tmp_path / "e.onnx", run / "set" / "test1.png", "--json")[0])[0]
    assert "labels" in row and 0 <= row["disagreement"] < 3**0.5
    out, _ = printed("export", run / "run", "-o", tmp_path / "i.onnx", "--quantize", "int8")
    assert "int8: 100 - mAP" in out


def test_evaluation_and_report_name_the_scores(run: Path, tmp_path: Path) -> None:
    out, _ = printed("evaluate", run / "run", "--calibrate")
    for words in (
        "mAP %",
        "macro F1 %",
        "micro F1 %",
        "thresholds fitted on the held-out images",
        "average precision",
    ):
        assert words in out
    assert "top-5" not in out and "balanced" not in out
    result = coterie.load(run / "run").evaluate()
    scores = result["predictors"][result["deployed"]]
    assert [row["threshold"] for row in scores["per_class"]] == scores["thresholds"]
    printed("report", run / "run", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "100 − mAP" in page and "has a mAP of" in page and "average precision %" in page
    assert "errs on" not in page and "top-5" not in page and "balanced error %" not in page
    assert "mAP %" in coterie.load(run / "run")._repr_html_() and ", mAP " in repr(coterie.load(run / "run"))


def test_a_continued_run_is_the_same_run(run: Path) -> None:
    """Its directory is accepted again with its options, and refused with another task."""
    table, out = run / "set" / "labels.csv", run / "run"
    smooth = ["--mix", "MixUp", "--label_smoothing", 0.05, "--class_weights", "balanced"]
    command = ["train", "--data", table, *OPTIONS, *smooth, "--method", "PCL", "--out", out]
    before = (out / "metrics.jsonl").read_text()
    printed(*command)
    assert (out / "metrics.jsonl").read_text() == before


def random_set(images: int = 24) -> tuple[Tensor, Tensor]:
    """Return pictures of noise with random labels of four classes."""
    labels = (torch.rand(images, 4) < 0.5).int()
    labels[0] = 1
    return torch.randint(0, 256, (images, 3, 16, 16), dtype=torch.uint8), labels


def test_comparisons_tell_points_of_map(tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": (random_set(), random_set()), "task": "multi_label", "model": "resnet8"}
    options |= {"epochs": 1, "batch": 8, "peers": 2, "methods": ["Baseline", "DML"], "out": tmp_path}
    comparison = coterie.compare(**options, seeds=1)
    assert "100 − mAP" in comparison.table.columns and "mAP than Baseline" in comparison.verdict


def test_pairs_of_tensors_train_for_the_task(tmp_path: Path) -> None:
    run = coterie.train(
        data=(random_set(), random_set()), task="multi_label", model="resnet8", method="KDCL",
        epochs=1, batch=8, peers=2, out=tmp_path / "run",
    )  # fmt: skip
    assert run.metrics[-1]["predictors"]["peer1"]["map"] == pytest.approx(100 - run.error)
    about = read_metadata(tmp_path / "run" / "student.safetensors")
    assert about is not None and about.task == "multi_label" and about.thresholds is None


class OwnDistillation(coterie.Baseline):
    """A method that distils by the softmax of one label an image.

    Args:
        net: the network.
    """

    def forward(self, views: Any, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits
        return total(ce=self.cross_entropy(z, targets), distil=distil_loss(z.detach(), z + 1, 3.0))


class OwnLoss(coterie.Baseline):
    """A method with a cross-entropy of its own.

    Args:
        net: the network.
    """

    def forward(self, views: Any, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        return total(ce=F.binary_cross_entropy_with_logits(self.net(views).logits[0], targets))


def test_methods_that_cannot_are_refused(run: Path, tmp_path: Path) -> None:
    start = {"model": "resnet8", "epochs": 1, "batch": 8, "task": "multi_label", "out": tmp_path / "run"}
    images, labels = torch.zeros(8, 3, 16, 16, dtype=torch.uint8), torch.arange(8) % 2
    pair = ((images, labels), (images, labels))
    for method, says in (
        ("MCL", "MCL compares the classes of images and has no form for several labels"),
        (OwnDistillation, "OwnDistillation computes a loss of one label an image by itself .log_softmax."),
        (OwnLoss, "OwnLoss does not call `self.cross_entropy`"),
    ):
        with pytest.raises(InputError, match=says):
            coterie.train(data=pair, method=method, **start)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    coterie.train(data=pair, method=OwnDistillation, **{**start, "task": "auto"})  # type: ignore[arg-type]


def test_a_teacher_must_be_of_the_same_task(run: Path, tmp_path: Path) -> None:
    teacher = run / "run"
    table = run / "set" / "labels.csv"
    kd = ["--method", "KD", "--method.teacher", teacher, "--epochs", 1]
    printed("train", "--data", table, *OPTIONS, *kd, "--out", tmp_path / "taught")
    assert last(tmp_path / "taught")["terms"]["distil"] > 0
    images, labels = torch.zeros(9, 3, 16, 16, dtype=torch.uint8), torch.arange(9) % 3
    with pytest.raises(InputError, match="trained for the task multi_label, not for single_label"):
        coterie.train(
            data=((images, labels), (images, labels)), model="resnet8", epochs=1, batch=8,
            method="KD", method_options={"teacher": str(teacher)}, out=tmp_path / "other",
        )  # fmt: skip


def test_two_processes_score_as_one(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without batch-norm and dropout two processes train to the same network, and rank all images together."""
    from coterie.config.options import from_options
    from coterie.training.loop import train_recipe

    add_plain(monkeypatch)
    data = {"class_path": str(run / "set" / "labels.csv"), "init_args": {"size": 16, "workers": 0}}
    options = {"model": "plain", "model_options": {"dropout": 0.0}, "data": data, "epochs": 2, "batch": 12}

    def train(out: Path) -> None:
        train_recipe(from_options({**options, "peers": 2, "method": "DML"}), out)

    train(tmp_path / "one")
    assert ended(*fork_ranks(2, lambda: train(tmp_path / "two"))) == [0, 0]
    one, two = (last(tmp_path / name)["predictors"]["peer1"] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-4)
    assert not np.isnan(one["map"])
