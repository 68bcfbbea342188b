"""One line of warning for each thing that makes numbers mean less than they seem to; none in a normal training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from coterie.metrics.chance import guessing_error, is_at_chance, random_order_error
from coterie.training.cautions import warn_of_chance
from tests.helpers.common import picture, printed

DIGITS = ["train", "--model", "resnet8", "--data", "digits"]


def warnings_of(*arguments: object) -> list[str]:
    _, said = printed(*arguments)
    return [line for line in said.splitlines() if "warning" in line]


def test_a_normal_training_has_no_warning(tmp_path: Path) -> None:
    options = ["--batch", 32, "--epochs", 3, "--ema_horizon", 0.05, "--warmup", 0.1, "--peers", 2]
    assert warnings_of(*DIGITS, *options, "--out", tmp_path / "run") == []


def test_an_average_over_less_than_two_steps(tmp_path: Path) -> None:
    options = ["--data.limit", 40, "--batch", 100, "--epochs", 4, "--peers", 2, "--out"]
    said = warnings_of(*DIGITS, *options, tmp_path / "short")
    assert said[0] == (
        "coterie: warning: averaged weights look back 1.0 of 16 steps, so that they are nearly the peers' own: "
        "raise --ema_horizon (such as 0.05), or train longer."
    )
    baseline = [*options[:-3], "--method", "Baseline", "--out"]
    assert not any("averaged" in line for line in warnings_of(*DIGITS, *baseline, tmp_path / "without"))
    assert any("averaged" in line for line in warnings_of(*DIGITS, "--ema", *baseline, tmp_path / "with"))
    longer = warnings_of(*DIGITS, "--ema_horizon", 0.125, *options, tmp_path / "longer")
    assert not any("averaged" in line for line in longer)


def test_small_batches_for_batch_norm_in_few_steps(tmp_path: Path) -> None:
    options = ["--method", "Baseline", "--epochs", 1, "--data.limit", 5]
    (said,) = (w for w in warnings_of(*DIGITS, *options, "--batch", 6, "--out", tmp_path / "a") if "norm" in w)
    assert "batch-norm sees 6 images at once in 9 steps an epoch, so that its statistics are noisy" in said
    parts = warnings_of(*DIGITS, *options, "--batch", 12, "--accumulate", 2, "--out", tmp_path / "b")
    assert any("batch-norm sees 6 images at once in 5 steps" in line for line in parts)
    for name, batch in (("c", 8), ("d", 2)):  # large enough, or 25 steps
        said = warnings_of(*DIGITS, *options, "--batch", batch, "--out", tmp_path / name)
        assert not any("batch-norm" in line for line in said)
    vit = ["train", "--model", "timm:vit_tiny_patch16_224", "--model_options", "{patch_size: 4, depth: 1}"]
    said = [*vit, "--data", "digits", *options, "--batch", 6, "--out", tmp_path / "e"]
    assert not any("batch-norm" in line for line in warnings_of(*said))


def test_a_class_with_few_images(tmp_path: Path) -> None:
    options = ["--method", "Baseline", "--epochs", 1, "--batch", 8]
    said = warnings_of(*DIGITS, *options, "--data.limit", 4, "--out", tmp_path / "a")
    assert "10 classes have fewer than 5 training images, the first is '0' with 4." in said[0]
    said = warnings_of(*DIGITS, *options, "--data.limit", 5, "--out", tmp_path / "b")
    assert not any("fewer than 5" in line for line in said)


def test_a_class_without_an_image_to_be_scored_on(tmp_path: Path) -> None:
    for split, classes in (("train", "abc"), ("test", "ac")):
        for name in classes:
            (tmp_path / "set" / split / name).mkdir(parents=True)
            for i in range(6):
                picture(i, (9, 9)).save(tmp_path / "set" / split / name / f"{i}.png")
    options = ["--data.size", 8, "--method", "Baseline", "--model", "resnet8", "--epochs", 1, "--batch", 9]
    said = warnings_of("train", "--data", tmp_path / "set", *options, "--out", tmp_path / "run")
    assert said[0] == "coterie: warning: 1 class has no test image, which no score shows: the first is 'b'."


def test_an_error_at_chance_level(tmp_path: Path) -> None:
    command = [*DIGITS, "--method", "Baseline", "--epochs", 1, "--batch", 100, "--optimizer.lr", 1e-9]
    said = warnings_of(*command, "--out", tmp_path / "run")
    assert (
        len(said) == 1
        and "of 1,197 images, which is chance level: always naming the commonest class errs on" in said[0]
    )
    assert warnings_of(*command, "--out", tmp_path / "run") == said  # of a finished run too


@pytest.mark.parametrize(
    ("error", "counts", "at_chance"),
    [
        (90.0, [10] * 10, True),
        (80.0, [10] * 10, False),
        (85.0, [10] * 10, True),  # 100 images cannot tell it from 90
        (89.0, [1000] * 10, False),
        (20.0, [80, 20], True),
        (10.0, [80, 20], False),
        (100.0, [5, 5], True),
    ],
)
def test_what_counts_as_chance(error: float, counts: list[int], at_chance: bool) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    assert guessing_error(labels) == pytest.approx(100 * (1 - max(counts) / sum(counts)))
    assert is_at_chance(error, labels) is at_chance


def test_chance_of_several_labels(capsys: pytest.CaptureFixture[str]) -> None:
    labels = (np.random.default_rng(0).random((100, 3)) < 0.3).astype(np.uint8)
    data = SimpleNamespace(labels={"val": labels}, eval_split="val", classes=["a", "b", "c"])
    chance, _ = random_order_error(labels)
    for error, warned in ((chance, True), (chance - 40, False)):
        warn_of_chance(data, {"deployed": "peer1", "predictors": {"peer1": {"error": error, "map": 100 - error}}})
        said = capsys.readouterr().err
        assert ("which is chance level: a random order of them has" in said) == warned
