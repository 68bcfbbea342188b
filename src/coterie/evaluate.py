"""Weights become numbers: errors, likelihood and calibration of every predictor, and how peers differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .costs import macs, parameters
from .cutting import evaluating
from .methods import Method
from .recipe import from_file
from .run import Run

BINS = 15
"""Bins of the expected calibration error, as Guo et al. (2017)."""


class Scores:
    """Running sums over batches for one predictor; they stay on the device until read."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: Tensor | None = None
        self.bins: Tensor | None = None

    def add(self, logits: Tensor, labels: Tensor) -> None:
        logits = logits.float()
        nll = F.cross_entropy(logits, labels, reduction="none").double().sum()
        top = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        right = top[:, 0].float()
        confidence = logits.softmax(1).amax(1)
        sums = torch.stack([right.sum().double(), top.sum().double(), nll])
        # Bin (k/n, (k+1)/n]: confidence, correctness and count of each.
        place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
        bins = torch.zeros(3, BINS, dtype=torch.float64, device=logits.device)
        bins.index_add_(1, place, torch.stack([confidence, right, torch.ones_like(right)]).double())
        self.merge(len(labels), sums, bins)

    def read(self) -> tuple[int, Tensor, Tensor]:
        """The sums, no longer on the device, for another process."""
        assert self.sums is not None and self.bins is not None
        return self.count, self.sums.cpu(), self.bins.cpu()

    def merge(self, count: int, sums: Tensor, bins: Tensor) -> None:
        """Add what a process has counted."""
        self.count += count
        self.sums = sums if self.sums is None else self.sums + sums
        self.bins = bins if self.bins is None else self.bins + bins

    def result(self) -> dict[str, float]:
        """Percent of errors in the first and in the first five guesses, NLL, expected calibration error."""
        assert self.sums is not None and self.bins is not None
        top1, top5, nll = (self.sums / self.count).tolist()
        confidence, right, _ = self.bins
        ece = (confidence - right).abs().sum().item() / self.count
        return {"error": 100 * (1 - top1), "top5_error": 100 * (1 - top5), "nll": nll, "ece": ece}


def evaluate(
    method: Method,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device | str = "cpu",
    gather: Callable[[Any], list[Any]] = lambda mine: [mine],
) -> dict[str, Any]:
    """Every predictor of a method on labelled images; its training mode is left as it was.

    Where several processes evaluate, each a part of the images, `gather` gives what all of them have counted.

    Beside the scores: `diversity`, the branch variance of Fig. 4, which is the L2 distance between the softmax
    outputs of two peers, averaged over pairs and images; and `agreement`, how often two peers name one class.
    Both are taken over every two branches, as Fig. 4 does, a leader (OKDDip) among them.
    """
    scores: dict[str, Scores] = {}
    spread: dict[str, list[Tensor]] = {}
    with evaluating(method):
        for images, labels in batches:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            logits = method.logits(images)
            for name, z in logits.items():
                scores.setdefault(name, Scores()).add(z, labels)
            for kind in ("peer", "mean"):
                peers = [z for name, z in logits.items() if name.removeprefix(kind).isdigit()]
                if len(peers) > 1:
                    spread.setdefault(kind, []).append(_spread(torch.stack(peers)))
    mine = (
        {name: s.read() for name, s in scores.items()},
        {k: torch.stack(parts).sum(0).cpu() for k, parts in spread.items()},
    )
    scores, spread = {}, {}
    for counted, spreads in gather(mine):
        for name, sums in counted.items():
            scores.setdefault(name, Scores()).merge(*sums)
        for kind, sums in spreads.items():
            spread.setdefault(kind, []).append(sums)
    diversity, agreement = {}, {}
    for kind, parts in spread.items():
        diversity[kind], agreement[kind] = (torch.stack(parts).sum(0) / scores[f"{kind}1"].count).tolist()
    return {
        "predictors": {name: score.result() for name, score in scores.items()},
        "deployed": method.deployed,
        "diversity": diversity,
        "agreement": agreement,
    }


def _spread(logits: Tensor) -> Tensor:
    """(m, B, C) -> sums over the batch of the pairs' mean distance and mean agreement."""
    p, guess = logits.float().softmax(-1), logits.argmax(-1)
    pairs = list(combinations(range(len(p)), 2))
    distance = torch.stack([(p[a] - p[b]).norm(dim=-1).sum() for a, b in pairs]).mean()
    agree = torch.stack([(guess[a] == guess[b]).float().sum() for a, b in pairs]).mean()
    return torch.stack([distance, agree]).double()


def of_run(directory: Path) -> dict[str, Any]:
    """Every predictor of a trained run on its test set, with what each one costs."""
    recipe = from_file(directory / "config.yaml")
    method, run = recipe.build(fresh=False), Run(directory)
    epochs = run.restore(method)
    device = recipe.torch_device()
    result = evaluate(method.to(device), recipe.data.test_batches(1000), device)
    for name, network in method.predictors().items():
        costs = {"parameters": parameters(network), "macs": macs(network, recipe.data.shape)}
        result["predictors"][name] |= costs
    return {"run": str(directory), "epochs": epochs, **result}
