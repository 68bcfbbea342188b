"""A method of one's own: every peer learns from the one before it, round a ring."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from coterie import Method, PeerNet
from coterie.methods.losses import ramp_up, total
from coterie.peers.net import Peers


class MyMethod(Method):
    """Branches in a ring, each taught by its neighbour; an ensemble with a learned weight for each.

    L = sum_j CE(z_j, y) + CE(z_e, y) + w(e) T^2 sum_j KL(sg softmax_T(z_{j-1}) || softmax_T(z_j))
    z_e = sum_j softmax(a)_j sg z_j

    Args:
        net: the peers.
        temperature: T.
        ramp_up: the epochs over which w(e) rises; None follows the training's length.
    """

    least_peers = 2

    def __init__(self, net: PeerNet, temperature: float = 3.0, ramp_up: float | None = None) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up = temperature, ramp_up
        self.weights = nn.Parameter(torch.zeros(net.size))

    def forward(self, views: Sequence[Tensor], targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers = self.net(views)  # one view for all: the shared layers run once
        z, w = peers.logits, ramp_up(epoch, self.ramp_up)
        return total(
            ce_peers=self.cross_entropy(z, targets),
            ce_ensemble=self.cross_entropy(self.ensemble(peers), targets),
            distil_neighbour=w * self.task.distil_loss(z.roll(1, dims=0).detach(), z, self.temperature),
        )

    def ensemble(self, peers: Peers) -> Tensor:
        return (self.weights.softmax(0)[:, None, None] * peers.logits.detach()).sum(0)
