"""The images a predictor is most sure about and wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.targets import probabilities
from ..methods.task import SINGLE_LABEL, Task


@dataclass(frozen=True)
class Mistake:
    """An image by its number among those evaluated, its label, the class it was taken for, and how surely.

    Of several labels, `label` holds zeros and ones, and `missed` tells that the class is there and was denied.
    """

    image: int
    label: Tensor
    guess: int
    confidence: float
    pixels: Tensor
    missed: bool = False


class Mistakes:
    """The most confident mistakes over batches, the most confident first."""

    def __init__(self, count: int, task: Task = SINGLE_LABEL) -> None:
        self.count, self.task, self.seen = count, task, 0
        self.worst: list[Mistake] = []

    def add(self, images: Tensor, labels: Tensor, logits: Tensor) -> None:
        p, labels = self.task.probabilities(logits.float()).cpu(), labels.cpu()
        if self.task.one_label:
            confidence, guess = p.max(1)
            wrong = (guess != labels).nonzero()[:, 0]
            missed = torch.zeros(len(labels), dtype=torch.bool)
        else:  # the worst of an image's classes
            labels = probabilities(labels, p.shape[1])
            confidence, guess = (p - labels).abs().max(1)
            wrong = (confidence > 0.5).nonzero()[:, 0]
            missed = labels.gather(1, guess[:, None])[:, 0] > 0.5
        wrong = wrong[confidence[wrong].argsort(descending=True)[: self.count]]
        new = [
            Mistake(
                self.seen + i, labels[i], int(guess[i]), float(confidence[i]), images[i].cpu(), bool(missed[i])
            )
            for i in wrong.tolist()
        ]
        self.worst = sorted([*self.worst, *new], key=lambda mistake: -mistake.confidence)[: self.count]
        self.seen += len(labels)
