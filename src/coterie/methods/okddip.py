"""OKDDip: Online Knowledge Distillation with Diverse Peers (Chen et al., AAAI 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import ramp_up, total, widen


class OKDDip(Method):
    """Branches that teach each other by attention, and a leader taught by their mean (Chen et al., AAAI 2020).

    L = sum_a CE(z_a, y) + CE(z_leader, y)
      + w(e) T^2 [ sum_a KL(softmax_T(t_a) || softmax_T(z_a))
                   + KL(sg softmax_T(mean_a z_a) || softmax_T(z_leader)) ]
    t_a = sum_b A_ab z_b, A = softmax over b, a itself included, of (W_q f_a).(W_k f_b)
    ce_peers, ce_leader, distil_peers, distil_leader: the four terms.

    Of m branches, one is the leader and m-1 are peers. The leader, branch 1, is deployed. The ensemble is the mean
    of the peers' logits; OKDDip-E of Table 3 has no leader (`leader` false) and m peers. W_q and W_k (d -> d/8, no
    bias) are shared by the peers and act on pooled features. They are trained only through t_a, so t_a is not
    detached, and its gradient also reaches the z_b.

    Our reading: the branch-based variant, attention without 1/sqrt(d), and the ramp-up, which is the common
    setting of the PCL paper.

    Args:
        net: the peers; the first one is the leader.
        temperature: the temperature T.
        ramp_up: the epochs over which w(e) rises; 0 for none. None follows the training option `ramp_up`, or is 80
            in your own loop.
        weight: the final value of w(e).
        leader: whether branch 1 is a leader.
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
