"""KDCL: Online Knowledge Distillation via Collaborative Learning (Guo et al., CVPR 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from ..peers.net import PeerNet
from .base import Method, Views
from .losses import total


class KDCL(Method):
    """Whole networks with a view each, taught by the best of them for each image (Guo et al., CVPR 2020).

    L = sum_i [ CE(z_i, y) + T^2 KL(sg softmax_T(z_t) || softmax_T(z_i)) ]
    ce_peers        sum_i CE(z_i, y)
    distil_ensemble the rest; it has no ramp-up.
    z_t, for each image, is one of
        naive      z_k of the network k with the lowest CE(z_k, y)          (KDCL-Naive, the paper's Table 1)
        mean       mean_i z_i
        min_logit  min_i (z_i - z_i[y]), for each class                     (KDCL-MinLogit)
    Of probabilities y, z_i[y] is sum_c y_c z_i[c].

    Network i gets its own augmented view x^i. The networks may have different architectures. Network 1 is
    deployed.

    Our reading: T = 3; KDCL-MinLogit as we recall it.

    Args:
        net: the networks, which share nothing.
        temperature: the temperature T.
        weight: the weight of the distillation term.
        teacher: how z_t is computed.
    """

    trains = "networks"
    least_peers = 2

    def __init__(
        self,
        net: PeerNet,
        temperature: float = 3.0,
        weight: float = 1.0,
        teacher: Literal["naive", "mean", "min_logit"] = "naive",
    ) -> None:
        super().__init__(net)
        self.temperature, self.weight, self.teacher = temperature, weight, teacher

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        return peers

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z, t = self.net(views).logits, self.temperature
        teacher = self.choose(z.detach(), targets)
        return total(
            ce_peers=self.cross_entropy(z, targets),
            distil_ensemble=self.weight * self.task.distil_loss(teacher, z, t),
        )

    def choose(self, z: Tensor, targets: Tensor) -> Tensor:
        """Return z_t (B, C) of logits (m, B, C)."""
        if self.teacher == "mean":
            return z.mean(0)
        if self.teacher == "min_logit":
            return self.task.min_logits(z, targets)
        # By the target as it is: neither smoothed nor weighted.
        return z[self.task.loss(z, targets).argmin(0), torch.arange(len(targets), device=z.device)]
