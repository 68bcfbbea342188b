"""MCL: Mutual Contrastive Learning (Yang et al., AAAI 2022), a method from after the paper."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import contrast, distil_loss, peer_divergences, reduce, total, widen


class MCL(Method):
    """Whole networks with contrastive losses within each network and between networks (Yang et al., AAAI 2022).

    L = sum_i CE(z_i, y) + a sum_i con(S_ii) + b sum_{i!=j} con(S_ij)
      + c sum_{i!=j} T^2 KL(sg softmax_T(S_jj) || softmax_T(S_ii))
      + d sum_{i!=j} T^2 KL(sg softmax_T(S_ji) || softmax_T(S_ij))
    S_ij = V_i V_j^T / tau, the similarities of the batch's embeddings in networks i and j,
    V_i = normalise(Linear(ReLU(Linear(f_i)))), of the pooled feature f_i,
    con(S): minus the mean over anchors of the mean over positives, which are the other images of the anchor's
    class, of log softmax over all other images.
    ce_peers; contrast (VCL); contrast_across (ICL); distil_contrast (soft VCL); distil_across (soft ICL).

    Network 1 is deployed, without its embedding. The ensemble is the mean of the logits.

    The formula follows the public code of the authors; we have not reproduced their results. Their batches contain
    two images of each class that occurs; ours are random. Our reading: an anchor without another image of its
    class in the batch is left out. With 100 classes and batches of 128 these are about 28 % of the anchors, with
    1,000 classes most of them. All networks are updated in one step.

    Args:
        net: the networks, which share nothing.
        temperature: the temperature T of the distillation terms.
        tau: the temperature of the similarities.
        width: the width of the embedding.
        contrast: a, the weight of the contrastive loss within networks.
        contrast_across: b, the weight of the contrastive loss between networks.
        distil_contrast: c, the weight of the distillation term within networks.
        distil_across: d, the weight of the distillation term between networks.
    """

    trains = "networks"
    least_peers = 2
    couples_batch = True
    soft_targets = False

    def __init__(
        self,
        net: PeerNet,
        temperature: float = 3.0,
        tau: float = 0.07,
        width: int = 128,
        contrast: float = 0.1,
        contrast_across: float = 0.1,
        distil_contrast: float = 1.0,
        distil_across: float = 1.0,
    ) -> None:
        super().__init__(net)
        self.temperature, self.tau = temperature, tau
        self.weights = contrast, contrast_across, distil_contrast, distil_across
        features = [shape for shape in net.shapes["features"] if shape is not None]
        if len(features) < net.size:
            raise InputError("MCL needs networks that end in a Linear classifier, for their pooled features.")
        self.embed = nn.ModuleList(
            nn.Sequential(nn.Linear(shape.numel(), width), nn.ReLU(), nn.Linear(width, width))
            for shape in features
        ).to(next(net.parameters()))

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers, t = self.net(views), self.temperature
        s = self.similarities(peers)
        within, between = s.diagonal().movedim(-1, 0), _off_diagonal(s)
        a, b, c, d = self.weights
        return total(
            ce_peers=self.cross_entropy(peers.logits, targets),
            contrast=a * reduce(*contrast(within, targets)),
            contrast_across=b * reduce(*contrast(between, targets)),
            distil_contrast=c * reduce(peer_divergences(within.detach(), within, t), scale=t**2),
            distil_across=d * distil_loss(_off_diagonal(s.transpose(0, 1)).detach(), between, t),
        )

    def similarities(self, peers: Peers) -> Tensor:
        """Compute S (m, m, B, B)."""
        embedded = [embed(f) for embed, f in zip(self.embed, peers.features, strict=True)]
        device = embedded[0].device.type
        full_precision: AbstractContextManager[object] = nullcontext()
        if torch.amp.is_autocast_available(device):  # not on meta
            full_precision = torch.autocast(device, enabled=False)  # else the product would be in half again
        with full_precision:
            v = F.normalize(widen(torch.stack(embedded)), dim=-1)
            return v.unsqueeze(1) @ v.transpose(-1, -2) / self.tau

    def ensemble(self, peers: Peers) -> Tensor:
        return peers.logits.mean(0)


def _off_diagonal(s: Tensor) -> Tensor:
    """(m, m, ...) -> (m (m-1), ...), row by row; a mask would wait for the device to count it."""
    m = len(s)
    return s.flatten(0, 1)[1:].unflatten(0, (m - 1, m + 1))[:, :-1].flatten(0, 1)
