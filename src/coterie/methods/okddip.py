"""OKDDip: Online Knowledge Distillation with Diverse Peers (Chen et al., AAAI 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import ramp_up, total, widen


class OKDDip(Method):
    """Peers with attention for each other, and a leader they teach, on one trunk (Chen et al., AAAI 2020).

    L = sum_a CE(z_a, y) + CE(z_leader, y)
      + w(e) T^2 [ sum_a KL(softmax_T(t_a) || softmax_T(z_a))
                   + KL(sg softmax_T(mean_a z_a) || softmax_T(z_leader)) ]
    t_a = sum_b A_ab z_b, A = softmax over b, a itself included, of (W_q f_a).(W_k f_b)
    ce_peers, ce_leader, distil_peers, distil_leader: the four terms.

    W_q and W_k (d -> d/8, no bias) are shared by the peers and act on pooled features. They learn through t_a
    alone, which is therefore not detached: its gradient reaches the z_b as well.
    m branches are m-1 peers and the leader. Deployed: the leader, which is branch 1. Ensemble: the mean of the
    peers' logits; OKDDip-E of Table 3 has no leader (`leader` false) and m peers.

    Our reading: the branch-based variant, the attention without 1/sqrt(d), and the ramp-up of the PCL paper's
    unified setting.

    Args:
        net: the peers; the first one is the leader.
        temperature: T.
        ramp_up: the epochs over which w(e) rises; 0 for none, null follows the recipe's `ramp_up` (alone: 80).
        weight: the height of w(e).
        leader: whether there is one.
    """

    least_peers = 2

    def __init__(
        self,
        net: PeerNet,
        temperature: float = 3.0,
        ramp_up: float | None = None,
        weight: float = 1.0,
        leader: bool = True,
    ) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up, self.weight = temperature, ramp_up, weight
        self.leaders = int(leader)
        shape, *others = net.shapes["features"]
        if shape is None or any(other != shape for other in others):
            raise InputError("OKDDip compares pooled features: its peers must end in Linear classifiers alike.")
        d = shape.numel()
        reference = next(net.parameters())
        self.query, self.key = (nn.Linear(d, max(1, d // 8), bias=False).to(reference) for _ in range(2))

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers = self.net(views)
        leader, z = peers.logits[: self.leaders], peers.logits[self.leaders :]
        w, t = ramp_up(epoch, self.ramp_up, self.weight), self.temperature
        teacher_logits = (self.attention(peers).unsqueeze(-1) * z).sum(1)
        return total(
            ce_peers=self.cross_entropy(z, targets),
            ce_leader=self.cross_entropy(leader, targets),  # 0 without a leader
            distil_peers=w * self.task.distil_loss(teacher_logits, z, t),
            distil_leader=w * self.task.distil_loss(z.mean(0).detach(), leader, t),
        )

    def attention(self, peers: Peers) -> Tensor:
        """Compute A (peers a, peers b, B): how much a listens to b."""
        features = torch.stack([f for f in peers.features[self.leaders :] if f is not None])
        query, key = widen(self.query(features)), widen(self.key(features))  # their products leave half's range
        return (query.unsqueeze(1) * key).sum(-1).softmax(1)

    def ensemble(self, peers: Peers) -> Tensor:
        return peers.logits[self.leaders :].mean(0)
