"""A method of one's own: every peer learns from the one before it, round a ring."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from coterie import Method, PeerNet
from coterie.losses import cross_entropy, distil, ramp_up, total
from coterie.peers import Peers


class MyMethod(Method):
    """Branches in a ring, each taught by its neighbour; an ensemble with a learned weight for each.

    L = sum_j CE(z_j, y) + CE(z_e, y) + w(e) T^2 sum_j KL(sg softmax_T(z_{j-1}) || softmax_T(z_j))
    z_e = sum_j softmax(a)_j sg z_j

    Args:
        net: the peers.
        temperature: T.
        ramp_up: the epochs over which w(e) rises.
    """

    least_peers = 2

    def __init__(self, net: PeerNet, temperature: float = 3.0, ramp_up: float = 80) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up = temperature, ramp_up
        self.weights = nn.Parameter(torch.zeros(net.size))

    def forward(self, views: Tensor, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        peers = self.net(views)  # one view for all: the shared layers run once
        z, w = peers.logits, ramp_up(epoch, self.ramp_up)
        return total(
            ce_peers=cross_entropy(z, labels).sum(),
            ce_ensemble=cross_entropy(self.ensemble(peers), labels),
            distil_neighbour=w * distil(z.roll(1, dims=0).detach(), z, self.temperature).sum(),
        )

    def ensemble(self, peers: Peers) -> Tensor:
        return (self.weights.softmax(0)[:, None, None] * peers.logits.detach()).sum(0)
