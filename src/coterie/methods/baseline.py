"""Baseline: the plain network, and the controls a comparison needs."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..errors import InputError
from ..peers.net import PeerNet
from .base import Method, Views
from .losses import total

MOST_VIEWS = 256
"""A file of a run may ask for any number."""


class Baseline(Method):
    """The network alone, trained with cross-entropy: L = CE(z, y).

    Two options make it a control for PCL. With `views` = m, each step uses m augmented views of each image, as
    many as PCL does, and L is the mean over the views. The training option `ema` keeps averaged weights, which
    shows how much of a gain comes from averaging.

    Args:
        net: the network, a PeerNet of one peer.
        views: number of views of each image per step.
    """

    trains = "one network"

    def __init__(self, net: PeerNet, views: int = 1) -> None:
        super().__init__(net)
        if not 1 <= views <= MOST_VIEWS:
            raise InputError(f"Baseline needs 1 to {MOST_VIEWS} views of each image, not {views:,}.")
        self.views = views

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        count = cls.option(options, "views")
        assert isinstance(count, int)
        return count

    @classmethod
    def step_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, teacher_size: float = 1.0
    ) -> float:
        return float(cls.option(options, "views"))  # each view is a step of its own

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        losses = [self.cross_entropy(self.net([view]).logits, targets) for view in views]
        return total(ce=sum(losses[1:], start=losses[0]) / len(losses))
