"""PCL: Peer Collaborative Learning (Wu & Gong, AAAI 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..peers.net import PeerNet, Peers
from .base import Method, Views
from .losses import PAPER_BETA, ramp_up, reduce, total


class PCL(Method):
    """Peers taught by their ensemble and by each other's mean models (Wu & Gong, AAAI 2021).

    L = L_ce^p + L_ce^t + L_pe + L_pm                                                         (Eq. 1)
    ce_peers        L_ce^p = sum_j CE(z_j, y)                                                 (Eq. 2)
    ce_ensemble     L_ce^t = CE(z^t, y), z^t = Linear(concat(f^1..f^m))                       (Eq. 3)
    distil_ensemble L_pe = w(e) T^2 sum_j KL(sg softmax_T(z^t) || softmax_T(z_j))             (Eq. 4-6)
    distil_mean     L_pm = w(e) T^2/(m-1) sum_j sum_{l!=j} KL(softmax_T(z^mt_l) || softmax_T(z_j))  (Eq. 9)

    Peer j gets its own augmented view x^j. The mean teacher of peer 1 is deployed. The ensemble is all mean
    teachers with the averaged classifier (PCL-E in the tables).

    Our reading of what the paper does not specify: mean teacher l gets the view of its own peer; its batch-norm is
    in training mode, with its own running statistics; the trunk's batch-norm normalises each view separately; the
    gradient stops at z^t in L_pe and flows through L_ce^t. Options change each of these.

    Args:
        net: the peers.
        temperature: the temperature T of both distillation terms.
        ramp_up: alpha, the epochs over which w(e) rises. None follows the training option `ramp_up`, or is 80 in
            your own loop.
        beta: the smoothing coefficient of the mean teachers. None follows the training option `ema_horizon`, or is
            0.999 in your own loop.
        weight: lambda, the final value of w(e); the paper has 1.0 for CIFAR and 0.1 for ImageNet.
        ensemble: how z^t is computed: by the learned classifier on all features, as the sum of the peers' logits
            (Table 2, "Logit Sum"), or not at all.
        distil_ensemble: whether the loss includes L_pe.
        peer_teacher: the teachers in L_pm: the mean models of the other peers, the other peers themselves ("Mutual
            Distillation"), only the peer's own mean model ("Traditional Mean Model", in our reading), or none.
        input_augmentation: whether each peer has its own view; without it ("w/o InAu") all peers get the same
            view.
        mean_view: the input of mean teacher l: the view of its own peer, or the view of each peer that it teaches
            (m times the cost of the teachers).
        mean_batch_norm: batch-norm of the mean teachers: training mode with their 'own' running statistics, or
            evaluation mode with the 'average' of the peers' running statistics.
        joint_trunk: whether the shared modules process the m views as one batch.
        ensemble_gradient: whether L_ce^t trains the peers as well as the classifier.
        teacher_gradient: whether L_pe also trains the ensemble.
    """

    def __init__(
        self,
        net: PeerNet,
        temperature: float = 3.0,
        ramp_up: float | None = None,
        beta: float | None = None,
        weight: float = 1.0,
        ensemble: Literal["learned", "sum", "none"] = "learned",
        distil_ensemble: bool = True,
        peer_teacher: Literal["mean", "mutual", "own_mean", "none"] = "mean",
        input_augmentation: bool = True,
        mean_view: Literal["own", "taught"] = "own",
        mean_batch_norm: Literal["own", "average"] = "own",
        joint_trunk: bool = False,
        ensemble_gradient: bool = True,
        teacher_gradient: bool = False,
    ) -> None:
        super().__init__(net)
        self.temperature, self.ramp_up, self.weight = temperature, ramp_up, weight
        self.ensemble_kind, self.distil_ensemble = ensemble, distil_ensemble
        self.peer_teacher, self.mean_view, self.joint_trunk = peer_teacher, mean_view, joint_trunk
        self.ensemble_gradient, self.teacher_gradient = ensemble_gradient, teacher_gradient
        self.views = self.view_count(net.size, {"input_augmentation": input_augmentation})
        if joint_trunk and self.views > 1:
            net.check_joint()
        # A subclass may do with `epoch` what no graph can hold.
        own_forward = type(self).forward is PCL.forward
        self.one_graph = own_forward and self.views > 1 and not joint_trunk and not net.checkpoint_activations
        if ensemble == "learned":
            if None in net.shapes["features"]:
                raise InputError("PCL needs a network that ends in a Linear classifier, for its pooled features.")
            width = sum(shape.numel() for shape in net.shapes["features"] if shape is not None)
            self.classifier = nn.Linear(width, net.num_classes).to(next(net.parameters()))
        if peer_teacher in ("mean", "own_mean"):
            self.keep_mean(PAPER_BETA if beta is None else beta, mean_batch_norm)
            self.deploys_mean = True

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        peers = self.net(views, joint=self.joint_trunk)
        z, zero, w = peers.logits, peers.logits.new_zeros(()), ramp_up(epoch, self.ramp_up, self.weight)
        ce_ensemble = distil_ensemble = zero
        teacher = self.ensemble(peers)
        if teacher is not None:
            ce_ensemble = self.cross_entropy(teacher, targets)
            if self.distil_ensemble:
                target = teacher if self.teacher_gradient else teacher.detach()
                distil_ensemble = w * self.task.distil_loss(target, z, self.temperature)
        return total(
            ce_peers=self.cross_entropy(z, targets),
            ce_ensemble=ce_ensemble,
            distil_ensemble=distil_ensemble,
            distil_mean=w * self._from_peers(views, z),
        )

    def _from_peers(self, views: Views, z: Tensor) -> Tensor:
        """Compute L_pm without its weight, from whoever teaches the peers."""
        if self.peer_teacher == "none":
            return z.new_zeros(())
        if self.peer_teacher == "mutual":
            return self._from_others(z.detach(), z)
        assert self.mean_method is not None
        with torch.no_grad():
            net = self.mean_method.net
            if self.mean_view == "taught" and len(views) > 1:
                teachers = torch.stack([net([view]).logits for view in views], dim=1)  # [l, j]
                if self.peer_teacher == "own_mean":
                    teachers = teachers.diagonal().movedim(-1, 0)
            else:
                teachers = net(views, joint=self.joint_trunk).logits
        if self.peer_teacher == "own_mean":
            return self.task.distil_loss(teachers, z, self.temperature)
        return self._from_others(teachers, z)

    def _from_others(self, teachers: Tensor, z: Tensor) -> Tensor:
        t, others = self.temperature, max(1, self.net.size - 1)
        return reduce(self.task.peer_divergences(teachers, z, t), scale=t**2) / others

    def ensemble(self, peers: Peers) -> Tensor | None:
        if self.ensemble_kind == "none":
            return None
        if self.ensemble_kind == "sum":
            return (peers.logits if self.ensemble_gradient else peers.logits.detach()).sum(0)
        features = torch.cat([f for f in peers.features if f is not None], dim=1)
        logits: Tensor = self.classifier(features if self.ensemble_gradient else features.detach())
        return logits

    @property
    def has_ensemble(self) -> bool:
        return self.ensemble_kind != "none"

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        return peers if cls.option(options, "input_augmentation") else 1

    @classmethod
    def step_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, teacher_size: float = 1.0
    ) -> float:
        one_view, own_views = cls.forward_cost(peers, share), cls.option(options, "input_augmentation")
        passes = peers if own_views else one_view  # with a view of its own, each peer runs the trunk for itself
        if not cls.averages_weights(options):
            return passes
        taught = own_views and cls.option(options, "mean_view") == "taught"  # all teachers on each view
        return passes + (peers * one_view if taught else passes) / 3  # the mean teachers only go forward

    @classmethod
    def averages_weights(cls, options: Mapping[str, object] = {}) -> bool:
        return cls.option(options, "peer_teacher") in ("mean", "own_mean")
