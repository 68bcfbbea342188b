"""OwnMean: a network taught by its own mean model, a method of ours."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..peers.net import PeerNet
from .base import Method, Views
from .losses import PAPER_BETA, total


class OwnMean(Method):
    """One network taught by its own mean model on another view (after Mean Teacher, Tarvainen & Valpola, 2017).

    L = CE(z, y) + lambda T^2 KL(softmax_T(z^mt) || softmax_T(z))
    ce           CE(z, y); z are the network's logits of the first view.
    distil_mean  the rest, without ramp-up; z^mt are the mean model's logits of the second view.

    The mean model has the running average of the network's weights (Eq. 7-8 of PCL). It is deployed.

    Our reading of Mean Teacher: all images have labels, KL replaces the squared difference, and the mean model is
    in evaluation mode.

    Args:
        net: the network, a PeerNet of one peer.
        temperature: the temperature T of the distillation term.
        weight: lambda, the weight of the distillation term.
        beta: the smoothing coefficient of the average. None follows `ema_horizon`, or is 0.999 in your own loop.
    """

    trains = "one network"

    def __init__(
        self, net: PeerNet, temperature: float = 3.0, weight: float = 1.0, beta: float | None = None
    ) -> None:
        super().__init__(net)
        self.temperature, self.weight, self.deploys_mean = temperature, weight, True
        self.keep_mean(PAPER_BETA if beta is None else beta)

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        network, mean = (method.net for _, method in self.raw_and_mean())  # the mean model has no gradients
        z, teacher = network([views[0]]).logits, mean([views[1]]).logits
        ce, distil = self.cross_entropy(z, targets), self.task.distil_loss(teacher, z, self.temperature)
        return total(ce=ce, distil_mean=self.weight * distil)

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        return 2

    @classmethod
    def step_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, teacher_size: float = 1.0
    ) -> float:
        return 1 + 1 / 3  # the mean model only goes forward

    @classmethod
    def averages_weights(cls, options: Mapping[str, object] = {}) -> bool:
        return True
