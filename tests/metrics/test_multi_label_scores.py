"""Scores of several labels an image against scikit-learn and NumPy; thresholds against trying all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from coterie.data.targets import class_counts
from coterie.methods.task import MULTI_LABEL, SINGLE_LABEL
from coterie.metrics.calibration import temperature
from coterie.metrics.chance import random_order_error
from coterie.metrics.evaluate import new_scores
from coterie.metrics.mistakes import Mistakes
from coterie.metrics.multi_label import MultiLabelScores, average_precisions, best_thresholds
from tests.helpers.reference import binary_losses, sigmoid

CLASSES = 4


def case(images: int = 60, ties: bool = False) -> tuple[Tensor, Tensor]:
    """Return logits that know a little about their targets, and the targets."""
    targets = (torch.rand(images, CLASSES) < torch.tensor([0.1, 0.3, 0.5, 0.8])).float()
    targets[0] = 1  # every class occurs
    logits = 2 * targets - 1 + 1.5 * torch.randn(images, CLASSES)
    return (logits.round() if ties else logits), targets


def scores_of(logits: Tensor, targets: Tensor, thresholds: list[float] | None = None) -> MultiLabelScores:
    scores = new_scores(MULTI_LABEL, thresholds=thresholds)
    assert isinstance(scores, MultiLabelScores)
    scores.add(logits, targets)
    return scores


@pytest.mark.parametrize("ties", [False, True])
def test_they_are_those_of_scikit_learn(ties: bool) -> None:
    z, y = case(ties=ties)
    result = scores_of(z, y).result()
    p = sigmoid(z.double().numpy())
    expected = 100 * average_precision_score(y.numpy(), p, average="macro")
    assert result["map"] == pytest.approx(expected) and result["error"] == pytest.approx(100 - expected)
    each = average_precision_score(y.numpy(), p, average=None)
    assert average_precisions(z, y) == pytest.approx(each.tolist())
    for thresholds in (None, [0.2, 0.4, 0.5, 0.7]):
        result = scores_of(z, y, thresholds).result()
        labels = p > (0.5 if thresholds is None else np.array(thresholds))
        assert result["macro_f1"] == pytest.approx(100 * f1_score(y.numpy(), labels, average="macro"))
        assert result["micro_f1"] == pytest.approx(100 * f1_score(y.numpy(), labels, average="micro"))


def test_likelihood_brier_score_and_calibration_error() -> None:
    z, y = case()
    result, p, labels = scores_of(z, y).result(), sigmoid(z.double().numpy()).ravel(), y.numpy().ravel()
    assert result["nll"] == pytest.approx(binary_losses(z.double().numpy(), y.numpy(), np.ones(CLASSES)).mean())
    assert result["brier"] == pytest.approx(((p - labels) ** 2).sum() / len(z))
    ece = 0.0
    for k in range(15):
        inside = (p > k / 15) & (p <= (k + 1) / 15)
        if inside.any():
            ece += abs(p[inside].mean() - labels[inside].mean()) * inside.mean()
    assert result["ece"] == pytest.approx(ece)
    bins = scores_of(z, y).reliability()
    assert len(bins) == 15 and sum(n for _, _, n in bins) == y.numel()


def test_a_class_that_no_image_has_is_left_out() -> None:
    z, y = case()
    y[:, 1] = 0
    result, others = scores_of(z, y).result(), [0, 2, 3]
    p = sigmoid(z.double().numpy())
    expected = average_precision_score(y.numpy()[:, others], p[:, others], average="macro")
    assert result["map"] == pytest.approx(100 * expected)
    labels = p[:, others] > 0.5
    assert result["macro_f1"] == pytest.approx(100 * f1_score(y.numpy()[:, others], labels, average="macro"))
    row = scores_of(z, y).per_class(list("abcd"))[1]
    assert row == {**row, "class": "b", "images": 0, "ap": None, "error": None, "f1": None, "false": 100.0}


def test_parts_of_several_processes_are_the_whole() -> None:
    z, y = case()
    whole, joined = scores_of(z, y), new_scores(MULTI_LABEL)
    for part in (slice(0, 7), slice(7, 60)):
        joined.merge(*scores_of(z[part], y[part]).read())
    assert joined.result() == whole.result() and joined.count == 60


def test_class_numbers_are_one_label_each() -> None:
    z, labels = torch.randn(20, CLASSES), torch.randint(CLASSES, (20,))
    hot = torch.eye(CLASSES)[labels]
    assert scores_of(z, labels).result() == scores_of(z, hot).result()
    assert class_counts(labels.numpy(), 5).tolist() == [*class_counts(hot.numpy(), 4).tolist(), 0]


def test_thresholds_have_the_highest_f1_of_all() -> None:
    z, y = case()
    y[:, 2] = 0
    p, thresholds = sigmoid(z.double().numpy()), best_thresholds(z, y)
    for c in range(CLASSES):
        if c == 2:
            assert thresholds[c] == 0.5
            continue
        tried = [f1_score(y.numpy()[:, c], p[:, c] > t) for t in [0.0, *p[:, c]]]
        assert f1_score(y.numpy()[:, c], p[:, c] > thresholds[c]) == pytest.approx(max(tried))
        assert not np.isclose(p[:, c], thresholds[c], atol=1e-9).any()  # between two of them
    rows = scores_of(z, y, thresholds).per_class(list("abcd"))
    assert [row["threshold"] for row in rows] == thresholds


def test_one_temperature_for_all_classes() -> None:
    z, y = case(400)
    t = temperature(3 * z, y, MULTI_LABEL)
    grid = np.linspace(0.5 * t, 2 * t, 301)
    losses = [binary_losses(3 * z.double().numpy() / g, y.numpy(), np.ones(CLASSES)).mean() for g in grid]
    assert grid[int(np.argmin(losses))] == pytest.approx(t, rel=0.01)


def test_a_random_order_has_the_expected_precision() -> None:
    y = (torch.rand(40, 3, generator=torch.Generator().manual_seed(0)) < torch.tensor([0.1, 0.3, 0.6])).float()
    drawn = []
    for seed in range(400):
        random = torch.rand(40, 3, generator=torch.Generator().manual_seed(seed))
        drawn.append(scores_of(random, y).result()["error"])
    chance, deviation = random_order_error(y.numpy())
    assert chance == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 20)
    assert 0.5 < deviation / np.std(drawn) < 2


def test_the_worst_label_of_an_image_is_its_mistake() -> None:
    z = torch.tensor([[5.0, -5.0, 0.1], [3.0, 2.0, -9.0], [4.0, -4.0, 4.0]])
    y = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    mistakes = Mistakes(5, MULTI_LABEL)
    mistakes.add(torch.zeros(3, 1, 2, 2), y, z)
    assert [(m.image, m.guess, m.missed) for m in mistakes.worst] == [(1, 2, True), (2, 2, False)]
    assert mistakes.worst[0].label.tolist() == [1, 0, 1]
    assert mistakes.worst[1].confidence == pytest.approx(sigmoid(np.array(4.0)))
    assert SINGLE_LABEL.one_label and not MULTI_LABEL.one_label
