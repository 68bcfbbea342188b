"""Candidates for a method of ours (issue 7/9), each a method that `coterie train --method candidates.NAME` takes.

What is not here is an option of a method that exists: KDCL with two networks is label choice between networks.
Symbols as in docs/methods: z logits, y targets, T = 3, sg a stopped gradient; ce(z) the cross-entropy of an image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from coterie import Method, PeerNet
from coterie.data.batch import BatchRequest, LoadedBatch
from coterie.data.cifar import cifar10 as Cifar10
from coterie.data.mix import clipped_side
from coterie.data.targets import probabilities
from coterie.methods.base import Views
from coterie.methods.losses import cross_entropy, distil, reduce, total

T = 3.0


def best_by_label(z: Tensor, targets: Tensor) -> Tensor:
    """The logits (B, C) of the candidate, of (k, B, C), with the lowest cross-entropy for each image."""
    return z[cross_entropy(z, targets).argmin(0), torch.arange(z.shape[1], device=z.device)]


def taught(log_q: Tensor, p: Tensor) -> Tensor:
    """T^2 KL(p || q) of every image, of probabilities p (B, C) at temperature T."""
    return T**2 * (p * (p.clamp_min(1e-12).log() - log_q)).sum(-1)


def log_softmax(z: Tensor) -> Tensor:
    return (z / T).log_softmax(-1)


class SoftGate(Method):
    """Two networks, a view each. The teacher is sum_i w_i softmax_T(z_i) with w = softmax_i(-ce(z_i))."""

    trains, least_peers = "networks", 2

    def __init__(self, net: PeerNet, weight: float = 1.0) -> None:
        super().__init__(net)
        self.views, self.weight = net.size, weight

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits
        gate = (-cross_entropy(z.detach(), targets)).softmax(0).unsqueeze(-1)
        p = (gate * log_softmax(z.detach()).exp()).sum(0)
        return total(ce=self.cross_entropy(z, targets), distil=self.weight * reduce(taught(log_softmax(z), p)))


class OnlyWrong(Method):
    """Two networks, a view each. The better by label teaches a network the images that it gets wrong."""

    trains, least_peers = "networks", 2

    def __init__(self, net: PeerNet) -> None:
        super().__init__(net)
        self.views = net.size

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits
        labels = targets if targets.dim() == 1 else targets.argmax(-1)
        wrong = (z.detach().argmax(-1) != labels).to(z.dtype)
        losses = distil(best_by_label(z.detach(), targets), z, T) * wrong
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class Standardised(Method):
    """Two networks, a view each. Label choice, logits standardised before the KL (Sun et al., CVPR 2024)."""

    trains, least_peers = "networks", 2

    def __init__(self, net: PeerNet) -> None:
        super().__init__(net)
        self.views = net.size

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits

        def standard(logits: Tensor) -> Tensor:
            return (logits - logits.mean(-1, keepdim=True)) / (logits.std(-1, keepdim=True) + 1e-7)

        losses = distil(standard(best_by_label(z.detach(), targets)), standard(z), T)
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class Branches(Method):
    """Two branches on a trunk, a view each; for each image the better by label teaches both."""

    trains, least_peers = "branches", 2

    def __init__(self, net: PeerNet) -> None:
        super().__init__(net)
        self.views = net.size

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net(views).logits
        losses = distil(best_by_label(z.detach(), targets), z, T)
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class TwoViews(Method):
    """One network on two views; for each image the better answer by label teaches both."""

    trains = "one network"

    def __init__(self, net: PeerNet) -> None:
        super().__init__(net)
        self.views = 2

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = torch.stack([self.net([view]).logits[0] for view in views])
        losses = distil(best_by_label(z.detach(), targets), z, T)
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class TwoViewsSoftly(TwoViews):
    """One network on two views; the teacher is sum_i w_i softmax_T(z_i) with w = softmax_i(-ce(z_i))."""

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = torch.stack([self.net([view]).logits[0] for view in views])
        gate = (-cross_entropy(z.detach(), targets)).softmax(0).unsqueeze(-1)
        p = (gate * log_softmax(z.detach()).exp()).sum(0)
        return total(ce=self.cross_entropy(z, targets), distil=reduce(taught(log_softmax(z), p)))


class _Averaged(Method):
    """One network and the average of its weights, which is deployed; `beta` follows the recipe's horizon."""

    trains = "one network"

    def __init__(self, net: PeerNet, beta: float | None = None) -> None:
        super().__init__(net)
        self.views, self.deploys_mean = 2, True
        self.keep_mean(0.999 if beta is None else beta)

    def average(self, view: Tensor) -> Tensor:
        assert self.mean_method is not None
        with torch.no_grad():
            logits: Tensor = self.mean_method.net([view]).logits[0]
        return logits


class OwnAverage(_Averaged):
    """One network; its average, on a second view, teaches where it is the better by label. Cost 1.33."""

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z, teacher = self.net([views[0]]).logits[0], self.average(views[1])
        better = cross_entropy(teacher, targets) < cross_entropy(z.detach(), targets)
        losses = distil(teacher, z, T) * better
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class AverageCandidates(_Averaged):
    """One network; of itself and its average on both views, the best by label teaches. Cost 1.67."""

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net([views[0]]).logits[0]
        candidates = torch.stack([z.detach(), self.average(views[0]), self.average(views[1])])
        losses = distil(best_by_label(candidates, targets), z, T)
        return total(ce=self.cross_entropy(z, targets), distil=reduce(losses))


class AverageTeaches(_Averaged):
    """One network; its average, on `looks` other views, teaches every image. Cost 1 + looks / 3.

    The views are mixed alike. The teacher is the mean of the average's probabilities over the views.
    """

    def __init__(self, net: PeerNet, beta: float | None = None, weight: float = 1.0, looks: int = 1) -> None:
        super().__init__(net, beta)
        self.views, self.weight = 1 + looks, weight

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = self.net([views[0]]).logits[0]
        p = torch.stack([log_softmax(self.average(view)).exp() for view in views[1:]]).mean(0)
        losses = taught(log_softmax(z), p)
        return total(ce=self.cross_entropy(z, targets), distil=self.weight * reduce(losses))


class BeforeMixing(_Averaged):
    """One network on a mixed view; its average sees both images unmixed, and its answers are mixed. Cost 1.33.

    It cuts and mixes by itself, with the probability of `probability`.
    """

    def __init__(
        self, net: PeerNet, beta: float | None = None, weight: float = 1.0, probability: float = 0.0
    ) -> None:
        super().__init__(net, beta)
        self.weight, self.probability = weight, probability

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        view, p = views[0], log_softmax(self.average(views[1])).exp()
        y = probabilities(targets, p.shape[-1])
        if self.training and float(torch.rand(())) < self.probability:
            order = torch.randperm(len(view), device=view.device)
            lam, height, width = float(torch.rand(())), *view.shape[-2:]
            top, bottom = clipped_side(height, float(torch.rand(())), lam)
            left, right = clipped_side(width, float(torch.rand(())), lam)
            view = view.clone()
            view[..., top:bottom, left:right] = views[0][order][..., top:bottom, left:right]
            lam = 1 - (bottom - top) * (right - left) / (height * width)
            y, p = lam * y + (1 - lam) * y[order], lam * p + (1 - lam) * p[order]
        z = self.net([view]).logits[0]
        return total(ce=self.cross_entropy(z, y), distil=self.weight * reduce(taught(log_softmax(z), p)))


class cifar10(Cifar10):
    """CIFAR-10 that keeps the numbers of the images it gave last, for `LastEpoch`."""

    last = np.zeros(0, np.int64)

    def load_batch(self, request: BatchRequest) -> LoadedBatch:
        if request.count is not None:
            cifar10.last = request.images
        return super().load_batch(request)


class LastEpoch(Method):
    """One network; targets are (1 - a) y + a p, p its own answers to other views in the last epoch. Cost `looks`.

    a rises linearly to 0.8 at the end (PS-KD, Kim et al., ICCV 2021). The table of answers is a buffer.
    """

    trains = "one network"

    def __init__(self, net: PeerNet, images: int = 2500, epochs: int = 150, looks: int = 1) -> None:
        super().__init__(net)
        self.epochs, self.views = epochs, looks
        self.register_buffer("table", torch.full((images, net.num_classes), -1.0))
        self.table: Tensor

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z = torch.stack([self.net([view]).logits[0] for view in views])
        y, images = probabilities(targets, z.shape[-1]), torch.from_numpy(cifar10.last)
        if len(images) != len(targets):  # the trial step before training
            return total(ce=self.cross_entropy(z, y))
        p = self.table[images]
        share = (0.8 * epoch / self.epochs) * (p[:, :1] >= 0)
        loss = self.cross_entropy(z, (1 - share) * y + share * p.clamp_min(0))
        if targets.dim() == 1:  # an answer to a mixed image is not one to the image
            self.table[images] = nn.functional.softmax(z.detach().float(), -1).mean(0)
        return total(ce=loss)
