"""FFL: Feature Fusion Learning (Kim et al., ICPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import ramp_up, total


class FFL(Method):
    """Branches and a classifier on their fused feature maps, which teach each other (Kim et al., ICPR 2020).

    L = sum_j CE(z_j, y) + CE(z_f, y)
      + w(e) T^2 [ sum_j KL(sg softmax_T(z_f) || softmax_T(z_j)) + KL(sg softmax_T(mean_j z_j) || softmax_T(z_f)) ]
    z_f = Linear(pool(fuse(concat(F_1..F_m)))), with F_j the last spatial map of branch j and
    fuse = depthwise 3x3, BN, ReLU, 1x1 (m d -> d), BN, ReLU, both convolutions without bias.
    ce_peers, ce_fused, distil_fused, distil_mean: the four terms.

    The gradient flows from z_f into the branches. The fusion adds 9md + 2md + md^2 + 2d + dC + C parameters.
    Branch 1 is deployed (FFL-S in the tables). The ensemble is z_f (FFL in the tables).

    Our reading: the fusion as above, whose number of parameters agrees with Table 3 of the PCL paper, and the
    ramp-up, which is the common setting of that paper.

    Args:
        net: the peers.
        temperature: the temperature T.
        ramp_up: the epochs over which w(e) rises; 0 for none. None follows the training option `ramp_up`, or is 80
            in your own loop.
        weight: the final value of w(e).
    """

    least_peers = 2

    def __init__(
        self, net: PeerNet, temperature: float = 3.0, ramp_up: float | None = None, weight: float = 1.0
    ) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up, self.weight = temperature, ramp_up, weight
        shape, *others = net.shapes["maps"]
        if shape is None:
            raise InputError("FFL fuses feature maps: it needs a network with a spatial map in its branches.")
        if any(other != shape for other in others):
            raise InputError("FFL fuses feature maps: its peers must have maps of one shape.")
        d, md = shape[0], net.size * shape[0]
        self.fuse = nn.Sequential(
            nn.Conv2d(md, md, 3, padding=1, groups=md, bias=False),
            nn.BatchNorm2d(md),
            nn.ReLU(),
            nn.Conv2d(md, d, 1, bias=False),
            nn.BatchNorm2d(d),
            nn.ReLU(),
        ).to(next(net.parameters()))
        self.classifier = nn.Linear(d, net.num_classes).to(next(net.parameters()))

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers = self.net(views)
        z, fused = peers.logits, self.ensemble(peers)
        w, t = ramp_up(epoch, self.ramp_up, self.weight), self.temperature
        return total(
            ce_peers=self.cross_entropy(z, targets),
            ce_fused=self.cross_entropy(fused, targets),
            distil_fused=w * self.task.distil_loss(fused.detach(), z, t),
            distil_mean=w * self.task.distil_loss(z.mean(0).detach(), fused, t),
        )

    def ensemble(self, peers: Peers) -> Tensor:
        maps = torch.cat([f for f in peers.maps if f is not None], dim=1)
        logits: Tensor = self.classifier(self.fuse(maps).mean((2, 3)))
        return logits
