"""OwnMean: a network taught by its own mean model, a method of ours."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..peers.net import PeerNet
from .base import Method, Views
from .losses import PAPER_BETA, total


class OwnMean(Method):
    """One network taught by its own mean model on another view.

    L = CE(z, y) + lambda T^2 KL(softmax_T(z^mt) || softmax_T(z))
    ce           CE(z, y); z are the network's logits of the first view.
    distil_mean  the rest, without ramp-up; z^mt are the mean model's logits of the second view.

    The mean model, which is deployed, has the running average of the network's weights (Eq. 7-8 of PCL). This is
    Mean Teacher (Tarvainen & Valpola, NeurIPS 2017) with all images labelled, and KL for the squared difference.

    Args:
        net: the network, a PeerNet of one peer.
        temperature: the temperature T of the distillation term.
        weight: lambda, the weight of the distillation term.
        beta: the smoothing coefficient of the average. None follows `ema_horizon`, or is 0.999 in your own loop.
    """

    trains = "one network"

    def __init__(self, net: PeerNet, temperature: float = 3, weight: float = 1, beta: float | None = None) -> None:
        super().__init__(net)
        self.temperature, self.weight = temperature, weight
        self.keep_mean(PAPER_BETA if beta is None else beta)
        self.deploys_mean = True

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        assert self.mean_method is not None
        z = self.net([views[0]]).logits
        with torch.no_grad():
            teacher = self.mean_method.net([views[1]]).logits
        return total(
            ce=self.cross_entropy(z, targets),
            distil_mean=self.weight * self.task.distil_loss(teacher, z, self.temperature),
        )

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        return 2

    @classmethod
    def step_cost(cls, *args: object, **options: object) -> float:
        return 1 + 1 / 3  # the mean model only goes forward

    @classmethod
    def averages_weights(cls, options: Mapping[str, object] = {}) -> bool:
        return True
