"""Score every predictor of a method: errors, likelihood and calibration, and how its peers differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import Data
from ..data.batch import SplitName
from ..data.device import accumulator_dtype, to_device
from ..data.targets import probabilities
from ..errors import InputError
from ..methods import Method
from ..methods.task import Task
from ..peers.trace import evaluating
from .calibration import halves, temperature
from .mistakes import Mistakes
from .multi_label import MultiLabelScores, best_thresholds

BINS = 15
"""Bins of the expected calibration error, as Guo et al. (2017)."""


class Scores:
    """Running sums over batches for one predictor; they stay on the device until read.

    images:  right in the first guess, right in the first five, their NLL and Brier score.
    bins:    the confidence, correctness and count of each bin of confidence.
    classes: of each class, its images, and how many of them were classified correctly.
    pairs:   how often an image of class a was taken for class b, with `per_class` alone.
    """

    def __init__(self, per_class: bool = False) -> None:
        self.count = 0
        self.counts_pairs = per_class
        self.sums: dict[str, Tensor] = {}

    def add(self, logits: Tensor, labels: Tensor) -> None:
        logits, classes, precise = logits.float(), logits.shape[1], accumulator_dtype(logits.device)
        nll = F.cross_entropy(logits, labels, reduction="none").to(precise).sum()
        guesses = logits.topk(min(5, classes), dim=1).indices
        top = guesses == labels[:, None]
        right = top[:, 0].float()
        p = logits.softmax(1)
        confidence = p.amax(1)
        # Brier (1950): the squared distance to the one-hot label, |p|^2 - 2 p_y + 1.
        brier = (p.square().sum(1) - 2 * p.gather(1, labels[:, None])[:, 0] + 1).to(precise).sum()
        images = torch.stack([right.sum().to(precise), top.sum().to(precise), nll, brier])
        # Bin (k/n, (k+1)/n].
        place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
        bins = torch.zeros(3, BINS, dtype=precise, device=logits.device)
        bins.index_add_(1, place, torch.stack([confidence, right, torch.ones_like(right)]).to(precise))
        # Not `bincount`: on a GPU it waits for the largest label.
        per_class = torch.zeros(2, classes, dtype=precise, device=logits.device)
        per_class.index_add_(1, labels, torch.stack([torch.ones_like(right), right]).to(precise))
        sums = {"images": images, "bins": bins, "classes": per_class}
        if self.counts_pairs:
            pairs = torch.bincount(labels * classes + guesses[:, 0], minlength=classes**2)
            sums["pairs"] = pairs.view(classes, classes)
        self.merge(len(labels), sums)

    def read(self) -> tuple[int, dict[str, Tensor]]:
        """Return the sums, no longer on the device, for another process."""
        return self.count, {name: _read_sums(values) for name, values in self.sums.items()}

    def merge(self, count: int, sums: dict[str, Tensor]) -> None:
        """Add what a process has counted."""
        self.count += count
        for name, values in sums.items():
            self.sums[name] = self.sums[name] + values if name in self.sums else values

    def result(self) -> dict[str, float]:
        """Return percent of errors in the first and first five guesses, NLL, calibration error, Brier score.

        The balanced error is the mean over the classes of each class's error; those without images are left out.
        """
        top1, top5, nll, brier = (self.sums["images"] / self.count).tolist()
        confidence, right, _ = self.sums["bins"]
        ece = (confidence - right).abs().sum().item() / self.count
        images, correct = self.sums["classes"].cpu()
        tested = images > 0
        balanced = (1 - correct[tested] / images[tested]).mean().item()
        return {
            "error": 100 * (1 - top1),
            "balanced_error": 100 * balanced,
            "top5_error": 100 * (1 - top5),
            "nll": nll,
            "ece": ece,
            "brier": brier,
        }

    def reliability(self) -> list[tuple[float, float, int]]:
        """Return mean confidence, accuracy and images of each bin; zeros where it is empty."""
        return [(c / n, r / n, int(n)) if n else (0.0, 0.0, 0) for c, r, n in self.sums["bins"].T.tolist()]

    def per_class(self, names: list[str]) -> list[dict[str, Any]]:
        """Return for each class its images, percent of them missed, percent of its guesses that are wrong, and
        the class that it is most often taken for; None where there is nothing to divide by."""
        pairs = self.sums["pairs"].cpu()
        right, images, guesses = pairs.diagonal(), pairs.sum(1), pairs.sum(0)
        wrong = pairs - torch.diag(right)
        return [
            {
                "class": name,
                "images": int(images[c]),
                "error": 100 * (1 - right[c].item() / images[c].item()) if images[c] else None,
                "false": 100 * (1 - right[c].item() / guesses[c].item()) if guesses[c] else None,
                "taken_for": names[int(wrong[c].argmax())] if wrong[c].any() else None,
            }
            for c, name in enumerate(names)
        ]


def evaluate(
    method: Method,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str = "cpu",
    gather: Callable[[Any], list[Any]] = lambda counts: [counts],
    classes: list[str] | None = None,
    mistakes: Mistakes | None = None,
    thresholds: dict[str, list[float]] | None = None,
) -> dict[str, Any]:
    """Score every predictor of a method on labelled images; its training mode is left as it was.

    Where several processes evaluate, each a part of the images, `gather` gives what all of them have counted.

    Beside the scores: `diversity`, the branch variance of Fig. 4, which is the L2 distance between the
    probabilities of two peers, averaged over pairs and images; and `agreement`, how often two peers name one
    class or, with several labels an image, say the same of a class.
    Both are taken over every two branches, as Fig. 4 does, a leader (OKDDip) among them.
    With the names of the `classes` each predictor also has a table `per_class` and the `bins` of its
    reliability diagram; `mistakes` collects those of the deployed one. With several labels an image, F1 is that
    of the `thresholds` of each predictor.
    """
    task, fitted = method.task, thresholds or {}
    scores: dict[str, AnyScores] = {}
    spread: dict[str, list[Tensor]] = {}
    with evaluating(method):
        for images, labels in batches:
            images, labels = to_device(images, device), to_device(labels, device)
            logits = method.logits(images)
            if mistakes is not None:
                mistakes.add(images, labels, logits[method.deployed])
            for name, z in logits.items():
                scores.setdefault(name, new_scores(task, classes is not None)).add(z, labels)
            for kind in ("peer", "mean"):
                peers = [z for name, z in logits.items() if name.removeprefix(kind).isdigit()]
                if len(peers) > 1:
                    spread.setdefault(kind, []).append(_spread(torch.stack(peers), task))
    counts = (
        {name: score.read() for name, score in scores.items()},
        {kind: _read_sums(torch.stack(parts).sum(0)) for kind, parts in spread.items()},
    )
    scores, spread = {}, {}
    for score_sums, spread_sums in gather(counts):
        for name, sums in score_sums.items():
            scores.setdefault(name, new_scores(task, thresholds=fitted.get(name))).merge(*sums)
        for kind, sums in spread_sums.items():
            spread.setdefault(kind, []).append(sums)
    if not scores:
        raise InputError(
            "None of the images to score could be read: `coterie data inspect` lists those that cannot, and why."
        )
    diversity, agreement = {}, {}
    for kind, parts in spread.items():
        diversity[kind], agreement[kind] = (torch.stack(parts).sum(0) / scores[f"{kind}1"].count).tolist()
    results: dict[str, dict[str, Any]] = {name: dict(score.result()) for name, score in scores.items()}
    for name in results.keys() & fitted.keys():
        results[name]["thresholds"] = fitted[name]
    if classes is not None:
        for name, score in scores.items():
            results[name] |= {"bins": score.reliability(), "per_class": score.per_class(classes)}
    return {"predictors": results, "deployed": method.deployed, "diversity": diversity, "agreement": agreement}


AnyScores = Scores | MultiLabelScores


def new_scores(task: Task, per_class: bool = False, thresholds: list[float] | None = None) -> AnyScores:
    """Return empty scores of a task."""
    if task.one_label:
        return Scores(per_class)
    return MultiLabelScores(None if thresholds is None else torch.tensor(thresholds, dtype=torch.float64))


def _read_sums(sums: Tensor) -> Tensor:
    """Copy sums to the host, which has float64 in any case."""
    sums = sums.cpu()
    return sums.double() if sums.is_floating_point() else sums


def _spread(logits: Tensor, task: Task) -> Tensor:
    """Sum over a batch of (m, B, C) the mean distance and the mean agreement of two peers."""
    p, guess = task.probabilities(logits.float()), task.decisions(logits)
    pairs = list(combinations(range(len(p)), 2))
    distance = torch.stack([(p[a] - p[b]).norm(dim=-1).sum() for a, b in pairs]).mean()
    equal = [(guess[a] == guess[b]).float() for a, b in pairs]
    if not task.one_label:  # an image counts by the part of its classes that two agree on
        equal = [same.mean(-1) for same in equal]
    agree = torch.stack([same.sum() for same in equal]).mean()
    return torch.stack([distance, agree]).to(accumulator_dtype(logits.device))


def calibrations(
    method: Method, data: Data, device: torch.device | str, tested: Data | None = None
) -> dict[str, dict[str, Any]]:
    """Return {temperature, fit_on, scored_on, before, after} of each predictor, scored on images not fit on.

    It is fit on the images that the run held out, and scored on the test set; a run that held none out has to
    divide the test images between the two.
    """
    logits, y = collect_logits(method, tested or data, "test", device)
    if data.eval_split == "val":
        fit_logits, fit_y = collect_logits(method, data, "val", device)
        about = {"fit_on": f"{len(fit_y):,} held-out images", "scored_on": f"{len(y):,} test images"}
    else:
        fit, report = halves(len(y))
        fit_logits, fit_y = {name: z[fit] for name, z in logits.items()}, y[fit]
        logits, y = {name: z[report] for name, z in logits.items()}, y[report]
        about = {
            "fit_on": f"every second test image ({len(fit_y):,}), for the run held none out (`val_fraction`)",
            "scored_on": f"the other {len(y):,} test images",
        }
    result = {}
    for name, z in logits.items():
        t = temperature(fit_logits[name], fit_y, method.task)
        before, after = new_scores(method.task), new_scores(method.task)
        before.add(z, y)
        after.add(z / t, y)
        result[name] = {"temperature": t, **about, "before": before.result(), "after": after.result()}
    return result


def collect_logits(
    method: Method, data: Data, split: SplitName, device: torch.device | str
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the logits of every predictor for every image of a split, and the labels."""
    parts: dict[str, list[Tensor]] = {}
    labels: list[Tensor] = []
    with evaluating(method):
        for images, batch_labels in data.test_batches(1000, split=split, device=device):
            for name, z in method.logits(images).items():
                parts.setdefault(name, []).append(z.float().cpu())
            labels.append(batch_labels.cpu())
    return {name: torch.cat(chunks) for name, chunks in parts.items()}, torch.cat(labels)


def fit_thresholds(method: Method, data: Data, device: torch.device | str) -> dict[str, list[float]] | None:
    """Return the thresholds of each predictor with the highest F1 on the held-out images, class by class.

    None where each image has one label, or where no images are held out: then thresholds are 0.5.
    """
    if method.task.one_label or data.eval_split != "val":
        return None
    logits, labels = collect_logits(method, data, "val", device)
    targets = probabilities(labels, len(data.classes)) > 0.5
    return {name: best_thresholds(z, targets) for name, z in logits.items()}
