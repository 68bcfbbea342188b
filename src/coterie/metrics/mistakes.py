"""The images a predictor is most sure about and wrong."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Mistake:
    """An image by its number among those evaluated, its class, the class it was taken for, and how surely."""

    image: int
    label: int
    guess: int
    confidence: float
    pixels: Tensor


class Mistakes:
    """The most confident mistakes over batches, the most confident first."""

    def __init__(self, count: int) -> None:
        self.count, self.seen = count, 0
        self.worst: list[Mistake] = []

    def add(self, images: Tensor, labels: Tensor, logits: Tensor) -> None:
        confidence, guess = (part.cpu() for part in logits.float().softmax(1).max(1))
        labels = labels.cpu()
        wrong = (guess != labels).nonzero()[:, 0]
        wrong = wrong[confidence[wrong].argsort(descending=True)[: self.count]]
        new = [
            Mistake(self.seen + i, int(labels[i]), int(guess[i]), float(confidence[i]), images[i].cpu())
            for i in wrong.tolist()
        ]
        self.worst = sorted([*self.worst, *new], key=lambda mistake: -mistake.confidence)[: self.count]
        self.seen += len(labels)
