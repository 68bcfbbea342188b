"""DML: Deep Mutual Learning (Zhang et al., CVPR 2018)."""

from __future__ import annotations

from torch import Tensor

from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import reduce, total


class DML(Method):
    """Whole networks that teach each other on the same view (Zhang et al., CVPR 2018).

    L = sum_k [ CE(z_k, y) + T^2/(m-1) sum_{l!=k} KL(sg softmax_T(z_l) || softmax_T(z_k)) ]
    ce_peers     sum_k CE(z_k, y)
    distil_peers the rest; it has no ramp-up.

    The networks may have different architectures. Network 1 is deployed. The ensemble is the mean of the logits.

    Our reading: all networks are updated in one step, while the original updates them in turn. The default T = 3
    is the common setting of the PCL paper; the original has, as we recall it, T = 1.

    Args:
        net: the networks, which share nothing.
        temperature: the temperature T.
        weight: the weight of the distillation term.
    """

    trains = "networks"
    least_peers = 2

    def __init__(self, net: PeerNet, temperature: float = 3.0, weight: float = 1.0) -> None:
        super().__init__(net)
        self.temperature, self.weight = temperature, weight

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z, t = self.net(views).logits, self.temperature
        others = reduce(self.task.peer_divergences(z.detach(), z, t), scale=t**2) / (self.net.size - 1)
        return total(ce_peers=self.cross_entropy(z, targets), distil_peers=self.weight * others)

    def ensemble(self, peers: Peers) -> Tensor:
        return peers.logits.mean(0)
