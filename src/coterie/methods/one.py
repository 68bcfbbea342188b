"""ONE: On-the-fly Native Ensemble (Lan et al., NeurIPS 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import ramp_up, total


class ONE(Method):
    """Branches taught by the gated sum of their logits (Lan et al., NeurIPS 2018).

    L = sum_j CE(z_j, y) + CE(z_e, y) + w(e) T^2 sum_j KL(sg softmax_T(z_e) || softmax_T(z_j))
    z_e = sum_j g_j z_j, with the gate g = softmax(ReLU(BN(Linear(pool(h))))) on the trunk's output h
    ce_peers, ce_ensemble, distil_ensemble: the three terms.

    The gate is trained only by CE(z_e, y). It adds m d_trunk + 3m parameters. Branch 1 is deployed. The ensemble
    is z_e (ONE-E in the tables). If the output of the trunk is tokens (B, N, d), they are averaged for the gate.

    Our reading: the ramp-up, which is the common setting of the PCL paper; the original, as we recall it, has none
    (`ramp_up` 0).

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
        if not net.shapes["trunk"]:
            raise InputError("ONE's gate looks at what the peers share: it needs a cut.")
        shape = net.shapes["trunk"][0]
        assert shape is not None
        width = shape[-1] if len(shape) == 2 else shape[0]
        gate = nn.Sequential(nn.Linear(width, net.size), nn.BatchNorm1d(net.size), nn.ReLU(), nn.Softmax(1))
        self.gate = gate.to(next(net.parameters()))

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers = self.net(views)
        z, teacher = peers.logits, self.ensemble(peers)
        w, t = ramp_up(epoch, self.ramp_up, self.weight), self.temperature
        return total(
            ce_peers=self.cross_entropy(z, targets),
            ce_ensemble=self.cross_entropy(teacher, targets),
            distil_ensemble=w * self.task.distil_loss(teacher.detach(), z, t),
        )

    def ensemble(self, peers: Peers) -> Tensor:
        trunk = peers.trunk[0]
        pooled = trunk.mean(1) if trunk.dim() == 3 else trunk.flatten(2).mean(2) if trunk.dim() > 3 else trunk
        return (self.gate(pooled).T.unsqueeze(-1) * peers.logits).sum(0)
