"""CL: Collaborative Learning with intermediate-level representation sharing (Song & Chai, NeurIPS 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..peers.net import PeerNet
from .base import Method, Views
from .losses import ramp_up, total


class CL(Method):
    """Branches (heads) of one trunk, each taught by the mean of the others (CL-ILR: Song & Chai, NeurIPS 2018).

    L = sum_h CE(z_h, y) + w(e) T^2 sum_h KL(sg softmax_T(mean_{j!=h} z_j) || softmax_T(z_h))
    ce_peers     the first sum
    distil_peers the second

    ILR (intermediate-level representation) sharing: at the cut, the gradient is multiplied by 1/m, so that the
    trunk is trained by the mean of the heads' gradients. Head 1 is deployed.

    Our reading: cross-entropy and distillation have the weight 1, T is 3, and there is a ramp-up, as in the common
    setting of the PCL paper. The original has, as we recall it, `ce_weight` 0.5, `weight` 0.5, `temperature` 2 and
    `ramp_up` 0.

    Args:
        net: the peers.
        temperature: the temperature T.
        ramp_up: the epochs over which w(e) rises; 0 for none. None follows the training option `ramp_up`, or is 80
            in your own loop.
        weight: the final value of w(e).
        ce_weight: the weight of the cross-entropy.
        mean_gradient: whether the gradient at the cut is multiplied by 1/m; otherwise the trunk is trained by the
            sum of the heads' gradients.
    """

    least_peers = 2

    def __init__(
        self,
        net: PeerNet,
        temperature: float = 3.0,
        ramp_up: float | None = None,
        weight: float = 1.0,
        ce_weight: float = 1.0,
        mean_gradient: bool = True,
    ) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up, self.weight = temperature, ramp_up, weight
        self.ce_weight, self.mean_gradient = ce_weight, mean_gradient

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views, trunk_gradient=1 / self.net.size if self.mean_gradient else 1.0).logits
        others = [torch.cat([z[:h], z[h + 1 :]]).mean(0).detach() for h in range(len(z))]
        w, t = ramp_up(epoch, self.ramp_up, self.weight), self.temperature
        return total(
            ce_peers=self.ce_weight * self.cross_entropy(z, targets),
            distil_peers=w * self.task.distil_loss(torch.stack(others), z, t),
        )
