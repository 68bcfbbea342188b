"""Class weights, label smoothing and options that follow the schedule, as a training takes them."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import coterie
from coterie.cli.main import main
from coterie.data.class_weights import read_class_weights
from coterie.data.digits import digits
from coterie.errors import InputError
from coterie.methods.cross_entropy import CrossEntropy
from coterie.methods.losses import cross_entropy, reduce, total
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet, printed, refused

CLASSES = 5
WEIGHTS = [0.5, 2.0, 1.0, 0.0, 3.0]


def test_class_weights_from_words_lists_and_files(tmp_path: Path) -> None:
    data = digits(limit=20)
    data.load()
    data.labels["train"] = np.array([0] * 6 + [1] * 3 + list(range(2, 10)))
    counts = np.bincount(data.labels["train"])
    weights = read_class_weights("balanced", data)
    assert weights == pytest.approx(17 / (10 * counts))
    file = tmp_path / "weights.txt"
    file.write_text("1, 2 3\n4\n5 6 7 8 9 10\n")
    assert read_class_weights(str(file), data) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    file.write_text(json.dumps([0.5] * 10))
    assert read_class_weights(str(file), data) == [0.5] * 10
    data.labels["train"] = np.array([0, 1])
    with pytest.raises(InputError, match="class '2' has no training images"):
        read_class_weights("balanced", data)
    with pytest.raises(InputError, match="1 weights, but there are 10"):
        read_class_weights([1.0], data)
    assert read_class_weights("1,2,3,4,5,6,7,8,9,1e1", data) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    file.write_text("one two")
    with pytest.raises(InputError, match="must hold numbers alone"):
        read_class_weights(str(file), data)


OPTIONS = ["--model", "resnet8", "--data", "digits", "--data.limit", 20, "--batch", 50, "--epochs", 1]


def test_refused_on_the_command_line_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for options, says in (
        (["--class_weights", "[1, 2]"], "2 weights, but there are 10 classes"),
        (["--class_weights", "no/such/file"], "cannot be read"),
        (["--label_smoothing", "1"], "label_smoothing must be from 0 to below 1"),
        (["--class_weights", "[-1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"], "not negative"),
    ):
        assert says in refused("train", *OPTIONS, *options, "--out", out)
        assert not out.exists()


def test_class_weights_do_not_depend_on_how_a_batch_is_cut_up() -> None:
    """Parts of a batch, each weighed by its number of images, add up to the weighted mean over the whole."""
    z, labels = torch.randn(9, CLASSES, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 2, 2, 4, 4])
    whole = F.cross_entropy(z, labels, weight=torch.tensor(WEIGHTS, dtype=torch.float64))
    criterion = CrossEntropy(class_weights=WEIGHTS).double()
    with criterion.part_of_batch(labels):
        parts = sum(
            criterion(z[part], labels[part]) * len(labels[part]) / 9 for part in (slice(0, 4), slice(4, 9))
        )
    torch.testing.assert_close(parts, whole)
    part = F.cross_entropy(z[:4], labels[:4], weight=torch.tensor(WEIGHTS, dtype=torch.float64))
    torch.testing.assert_close(criterion(z[:4], labels[:4]), part)  # nothing is kept from the batch


def test_a_batch_of_classes_without_weight_has_no_loss() -> None:
    criterion = CrossEntropy(class_weights=[1.0, 0.0, 0.0])
    assert criterion(torch.randn(2, 3), torch.tensor([1, 2])).item() == 0


@pytest.mark.parametrize("weights", ["balanced", 2.0, [-1.0, 1.0], [float("nan"), 1.0], [0.0, 0.0]])
def test_bad_class_weights(weights: Any) -> None:
    with pytest.raises(InputError, match="class_weights must be a list"):
        CrossEntropy(class_weights=weights)


def test_training_with_weights_and_smoothing_records_what_was_used(tmp_path: Path) -> None:
    out = tmp_path / "run"
    printed(
        "train",
        *OPTIONS,
        "--method",
        "KDCL",
        "--class_weights",
        "balanced",
        "--label_smoothing",
        0.1,
        "--out",
        out,
    )
    assert json.loads((out / "resolved.json").read_text())["class_weights"] == pytest.approx([1.0] * 10)


def test_options_of_a_file_train_what_the_flags_do(tmp_path: Path) -> None:
    """Fractions follow the length of the training through --print_config, and through a run's own config.yaml."""
    flags = [*OPTIONS, "--method", "PCL", "--epochs", 2]
    printed("train", *flags, "--out", tmp_path / "direct")
    text = io.StringIO()
    with contextlib.redirect_stdout(text), pytest.raises(SystemExit):
        main(["train", *map(str, flags), "--print_config"])
    file = tmp_path / "printed.yaml"
    file.write_text(text.getvalue())
    printed("train", "--config", file, "--out", tmp_path / "through")
    resolved = [json.loads((tmp_path / n / "resolved.json").read_text()) for n in ("direct", "through")]
    assert resolved[0] == resolved[1] == {"method.ramp_up": pytest.approx(2 * 80 / 300), "method.beta": 0.0}
    weights = [(tmp_path / n / "student.safetensors").read_bytes() for n in ("direct", "through")]
    assert weights[0] == weights[1]
    printed("train", "--config", tmp_path / "direct" / "config.yaml", "--epochs", 3, "--out", tmp_path / "longer")
    assert json.loads((tmp_path / "longer" / "resolved.json").read_text())["method.ramp_up"] == pytest.approx(0.8)
    printed("train", *flags, "--method.ramp_up", 1.5, "--out", tmp_path / "given")
    assert "method.ramp_up" not in json.loads((tmp_path / "given" / "resolved.json").read_text())
    assert "ramp_up: 1.5" in (tmp_path / "given" / "config.yaml").read_text()


class Deaf(coterie.Baseline):
    """A method that computes its cross-entropy by itself.

    Args:
        net: the network.
    """

    def forward(self, views: Any, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        return total(ce=reduce(cross_entropy(self.net(views).logits, targets)))


def test_recipes_that_a_method_would_ignore_are_refused(tmp_path: Path) -> None:
    deaf = ["--method", "tests.methods.test_recipes.Deaf", "--out", tmp_path / "run"]
    assert "does not call `self.cross_entropy`" in refused("train", *OPTIONS, "--label_smoothing", 0.1, *deaf)
    assert not (tmp_path / "run").exists()


def test_a_term_that_is_no_number_is_named() -> None:
    with pytest.raises(InputError, match=r"'ce' has the shape \(4,\)"):
        total(ce=torch.zeros(4))


def test_a_weights_file_is_needed_for_training_only_and_must_not_change(tmp_path: Path) -> None:
    file, out = tmp_path / "weights.txt", tmp_path / "run"
    file.write_text("1 " * 10)
    command = ["train", *OPTIONS, "--method", "Baseline", "--class_weights", file, "--out", out]
    printed(*command)
    before = (out / "resolved.json").read_text()
    file.write_text("2 " * 10)
    assert "class_weights is not what it was when the run began" in refused(*command)
    assert (out / "resolved.json").read_text() == before
    file.unlink()
    assert "peer1" in printed("evaluate", out)[0]


def test_a_replaced_loss_does_not_disturb_the_averages() -> None:
    method = coterie.PCL(PeerNet(TinyNet, 2, "stage3"))
    method.cross_entropy = CrossEntropy(class_weights=[1.0] * CLASSES)
    method.keep_mean(0.9)
    method.cross_entropy = CrossEntropy(label_smoothing=0.1)
    method.after_step()
