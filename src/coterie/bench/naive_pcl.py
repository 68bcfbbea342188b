"""The reference: PCL as it is usually written by hand, to be measured beside ours.

NCHW, PIL and torchvision for each image and view in the workers of a `DataLoader`, one forward per view, a Python
loop over the parameters for the averages, the terms one by one, the loss read after every step. It computes what
`coterie.PCL` computes; nothing in it is meant to be fast, or slow.
"""

from __future__ import annotations

import copy
import math
import multiprocessing
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..compat import import_torchvision
from .noise import Noise
from .subjects import EPOCH, BenchSize, default_device, random_batch
from .timing import Call

WORKERS = 2


class Branches(nn.Module):
    """One of our ResNets with its last stage and classifier once per peer, and the ensemble's classifier."""

    def __init__(self, networks: Sequence[Any]) -> None:
        super().__init__()
        first = networks[0]
        self.trunk = nn.Sequential(first.stem, first.stage1, first.stage2)
        self.stages = nn.ModuleList([network.stage3 for network in networks])
        self.heads = nn.ModuleList([network.fc for network in networks])
        self.classifier = nn.Linear(len(networks) * first.fc.in_features, first.fc.out_features)

    def forward(self, views: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        logits, features = [], []
        for view, stage, head in zip(views, self.stages, self.heads, strict=True):
            feature = F.adaptive_avg_pool2d(stage(self.trunk(view)), 1).flatten(1)
            features.append(feature)
            logits.append(head(feature))
        return logits, self.classifier(torch.cat(features, dim=1))


class NaivePCL:
    """Student, mean teacher, optimiser and step counter of a training written by hand."""

    temperature, ramp_up, beta = 3.0, 80.0, 0.999

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.net = Branches(networks).to(default_device()).train()
        self.teacher = copy.deepcopy(self.net).requires_grad_(False)
        self.optimizer = torch.optim.SGD(
            self.net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.steps = 0
        self.losses: list[float] = []

    def terms(self, views: Sequence[Tensor], labels: Tensor, epoch: int) -> list[Any]:
        """Return L_ce^p, L_ce^t, L_pe, L_pm (Eq. 1-6, 9)."""
        logits, ensemble = self.net(views)
        with torch.no_grad():
            means, _ = self.teacher(views)
        m, t = len(logits), self.temperature
        w = math.exp(-5 * (1 - epoch / self.ramp_up) ** 2) if epoch < self.ramp_up else 1.0
        ce_peers = sum(F.cross_entropy(z, labels) for z in logits)
        distil_ensemble = sum(w * naive_kl(ensemble.detach(), z, t) for z in logits)
        others = [(z, mean) for j, z in enumerate(logits) for i, mean in enumerate(means) if i != j]
        distil_mean = sum(w * naive_kl(mean, z, t) / (m - 1) for z, mean in others)
        return [ce_peers, F.cross_entropy(ensemble, labels), distil_ensemble, distil_mean]

    def step(self, views: Sequence[Tensor], labels: Tensor, epoch: int) -> None:
        loss = sum(self.terms(views, labels, epoch))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        phi = min(1 - 1 / self.steps, self.beta)
        for mean, p in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            mean.data.mul_(phi).add_(p.data, alpha=1 - phi)
        self.losses.append(loss.item())


def naive_kl(teacher: Tensor, student: Tensor, t: float) -> Tensor:
    """Return T^2 KL(softmax_T(teacher) || softmax_T(student)), as it is usually written."""
    log_p, target = F.log_softmax(student / t, dim=1), F.softmax(teacher / t, dim=1)
    return F.kl_div(log_p, target, reduction="batchmean") * t * t


class PerView(Dataset[tuple[list[Tensor], int]]):
    """Random images of which each view is opened and transformed by itself."""

    def __init__(self, images: int, views: int) -> None:
        transforms = import_torchvision("torchvision.transforms")
        data = Noise(images)
        data.load()
        self.pixels = np.stack([np.asarray(data.original(i)) for i in range(images)])
        self.labels, self.views = data.labels["train"].tolist(), views
        crop_and_flip = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip()]
        normalize = [transforms.ToTensor(), transforms.Normalize(data.mean, data.std)]
        self.transform = transforms.Compose([*crop_and_flip, *normalize])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int]:
        views = [self.transform(Image.fromarray(self.pixels[index])) for _ in range(self.views)]
        return views, self.labels[index]


def build_naive(size: BenchSize) -> NaivePCL:
    return NaivePCL([size.make_network() for _ in range(size.peers)])


def build_naive_step(size: BenchSize) -> Call:
    """Build a call that takes one step on a batch that is already augmented."""
    training, (views, labels) = build_naive(size), random_batch(size.peers, size)
    return lambda: training.step(views, labels, EPOCH)


def build_naive_epoch(size: BenchSize, train: bool) -> Call:
    """Build a call that loads the views of one short epoch, by workers that stay, and trains on them if asked."""
    device = default_device()
    loader = DataLoader(
        PerView(size.steps * size.batch, size.peers),
        size.batch,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork" if "fork" in multiprocessing.get_all_start_methods() else None,
        pin_memory=device.type == "cuda",
    )
    training = build_naive(size) if train else None

    def epoch() -> None:
        for views, labels in loader:
            if training is not None:
                views = [view.to(device, non_blocking=True) for view in views]
                training.step(views, labels.to(device, non_blocking=True), EPOCH)

    return epoch
