"""KDCL: Online Knowledge Distillation via Collaborative Learning (Guo et al., CVPR 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..losses import cross_entropy, distil, total, widen
from ..peers import PeerNet
from .method import Method, Views


class KDCL(Method):
    """Whole networks, a view for each, all taught by the best answer to each image (Guo et al., CVPR 2020).

    L = sum_i [ CE(z_i, y) + T^2 KL(sg softmax_T(z_t) || softmax_T(z_i)) ]
    ce_peers        sum_i CE(z_i, y)
    distil_ensemble the rest; it has no ramp-up.
    z_t, for each image, is one of
        naive      z_k of the network k with the lowest CE(z_k, y)          (KDCL-Naive, the paper's Table 1)
        mean       mean_i z_i
        min_logit  min_i (z_i - z_i[y]), for each class                     (KDCL-MinLogit)

    Network i sees its own augmented view x^i. The networks may be of different architectures.
    Deployed: network 1.

    Our reading: T = 3; KDCL-MinLogit as we recall it.

    Args:
        net: the networks, which share nothing.
        temperature: T.
        weight: of the distillation term.
        teacher: how z_t is made.
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
        self.views = net.size

    def forward(self, views: Views, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        z = self.net(views).logits
        target = self.target(z.detach(), labels)
        return total(
            ce_peers=cross_entropy(z, labels).sum(),
            distil_ensemble=self.weight * distil(target, z, self.temperature).sum(),
        )

    def target(self, z: Tensor, labels: Tensor) -> Tensor:
        """z_t (B, C) of logits (m, B, C)."""
        if self.teacher == "mean":
            return z.mean(0)
        images = torch.arange(len(labels), device=z.device)
        if self.teacher == "min_logit":
            return (z - z[:, images, labels].unsqueeze(-1)).amin(0)
        best = widen(z).log_softmax(-1)[:, images, labels].argmax(0)  # the lowest CE
        return z[best, images]
