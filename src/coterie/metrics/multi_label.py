"""Scores of images with several labels: average precision, F1 at thresholds, and the thresholds themselves."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from ..data.targets import probabilities
from ..methods.task import MULTI_LABEL

BINS = 15
"""Bins of the calibration error, as for one label an image."""


class MultiLabelScores:
    """The logits and targets of all images for one predictor: average precision ranks all of them.

    Args:
        thresholds: of each class's probability, for F1; 0.5 without.
    """

    def __init__(self, thresholds: Tensor | None = None) -> None:
        self.count = 0
        self.thresholds = thresholds
        self.parts: list[dict[str, Tensor]] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        targets = probabilities(labels, logits.shape[1]) > 0.5
        self.merge(len(labels), {"logits": logits.float().cpu(), "targets": targets.cpu()})

    def read(self) -> tuple[int, dict[str, Tensor]]:
        """Return everything, for another process."""
        return self.count, self._joined()

    def merge(self, count: int, part: dict[str, Tensor]) -> None:
        """Add the images of a process."""
        self.count += count
        self.parts.append(part)

    def _joined(self) -> dict[str, Tensor]:
        if len(self.parts) > 1:
            self.parts = [{name: torch.cat([part[name] for part in self.parts]) for name in self.parts[0]}]
        return self.parts[0]

    def result(self) -> dict[str, float]:
        """Return mAP and F1 in per cent, NLL, calibration error and Brier score; `error` is 100 - mAP.

        mAP and macro F1 are means over the classes that occur; micro F1 counts the decisions of all classes
        together. NLL and Brier score are sums over the classes, averaged over the images, as for one label.
        """
        z, y = self._joined()["logits"], self._joined()["targets"]
        p = z.double().sigmoid()
        mean_precision = 100 * fmean([ap for ap in average_precisions(z, y) if ap is not None] or [0.0])
        right, chosen, labelled = self._decisions()
        occurs = labelled > 0
        bins = self._bins()
        return {
            "error": 100 - mean_precision,
            "map": mean_precision,
            "macro_f1": 100 * f1(right, chosen, labelled)[occurs].mean().item(),
            "micro_f1": 100 * f1(right.sum(), chosen.sum(), labelled.sum()).item(),
            "nll": MULTI_LABEL.loss(z.double(), y).mean().item(),
            "ece": (bins[0] - bins[1]).abs().sum().item() / y.numel(),
            "brier": (p - y.double()).square().sum(1).mean().item(),
        }

    def _decisions(self) -> tuple[Tensor, Tensor, Tensor]:
        """Count, for each class, the right decisions for it, all decisions for it, and the images that have it."""
        z, y = self._joined()["logits"], self._joined()["targets"]
        yes = MULTI_LABEL.decisions(z, self.thresholds)
        return (yes & y).sum(0).double(), yes.sum(0).double(), y.sum(0).double()

    def _bins(self) -> Tensor:
        """Sum, in bins of all probabilities of all classes, the probabilities, the labels, and their number."""
        p, y = self._joined()["logits"].double().sigmoid().flatten(), self._joined()["targets"].double().flatten()
        place = (p * BINS).ceil().long().clamp(1, BINS) - 1
        bins = torch.zeros(3, BINS, dtype=torch.float64)
        return bins.index_add_(1, place, torch.stack([p, y, torch.ones_like(p)]))

    def reliability(self) -> list[tuple[float, float, int]]:
        """Return mean probability, part of the labels that are there, and their number, of each bin."""
        return [(c / n, r / n, int(n)) if n else (0.0, 0.0, 0) for c, r, n in self._bins().T.tolist()]

    def per_class(self, names: list[str]) -> list[dict[str, Any]]:
        """Return for each class its images, average precision, F1, per cent of its decisions that are wrong, and
        its threshold; None where there is nothing to divide by."""
        right, chosen, labelled = self._decisions()
        f1s = f1(right, chosen, labelled)
        precisions = average_precisions(self._joined()["logits"], self._joined()["targets"])
        return [
            {
                "class": name,
                "images": int(labelled[c]),
                "error": None if precision is None else 100 - 100 * precision,
                "ap": None if precision is None else 100 * precision,
                "f1": 100 * f1s[c].item() if labelled[c] else None,
                "false": 100 * (1 - (right[c] / chosen[c]).item()) if chosen[c] else None,
                "threshold": 0.5 if self.thresholds is None else self.thresholds[c].item(),
            }
            for c, (name, precision) in enumerate(zip(names, precisions, strict=True))
        ]


def f1(right: Tensor, chosen: Tensor, labelled: Tensor) -> Tensor:
    """Compute 2 TP / (2 TP + FP + FN); 0 where nothing is chosen or labelled."""
    return 2 * right / (chosen + labelled).clamp(min=1)


def average_precisions(scores: Tensor, targets: Tensor) -> list[float | None]:
    """Compute sum_n (R_n - R_{n-1}) P_n of each class over its scores (N, C), equal ones together.

    None for a class that no image has.
    """
    precisions: list[float | None] = []
    for column, labels in zip(scores.T, targets.T, strict=True):
        if not labels.any():
            precisions.append(None)
            continue
        _, right, chosen = ranked(column, labels)
        gained = right.diff(prepend=right.new_zeros(1))
        precisions.append(float((gained * right / chosen).sum() / right[-1]))
    return precisions


def ranked(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct scores (N,), highest first, and how many of those as high have the label, and are."""
    values, order = scores.sort(descending=True)
    last = torch.cat([values[1:] != values[:-1], values.new_ones(1, dtype=torch.bool)]).nonzero()[:, 0]
    return values[last], labels[order].double().cumsum(0)[last], (last + 1).double()


def best_thresholds(logits: Tensor, targets: Tensor) -> list[float]:
    """Return the threshold of each class's probability with the highest F1; 0.5 for a class that no image has.

    It lies halfway between two probabilities that occur; of several that are as good, it is the highest.
    """
    thresholds = []
    for column, labels in zip(logits.double().sigmoid().T, targets.T, strict=True):
        if not labels.any():
            thresholds.append(0.5)
            continue
        values, right, chosen = ranked(column, labels)
        best = int(f1(right, chosen, right[-1]).argmax())
        below = values[best + 1].item() if best + 1 < len(values) else 0.0
        thresholds.append((values[best].item() + below) / 2)
    return thresholds
