"""The reference step: PCL as people write it today, to be measured against ours.

NCHW, PIL and torchvision for each image and view in the workers of a `DataLoader`, one forward per view, a Python
loop over the parameters for the averages, the terms one by one, the loss read after every step. It computes what
`coterie.PCL` computes; nothing here is meant to be fast, or slow.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from .. import models
from ..compat import import_torchvision
from .noise import Noise
from .size import Size
from .subjects import EPOCH, device, inputs
from .timing import Run

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
    """A training by hand: student, teacher, optimiser, step counter."""

    def __init__(
        self, networks: Sequence[nn.Module], temperature: float = 3.0, ramp_up: float = 80, beta: float = 0.999
    ) -> None:
        self.net = Branches(networks).to(device()).train()
        self.teacher = copy.deepcopy(self.net)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.temperature, self.ramp_up, self.beta = temperature, ramp_up, beta
        self.optimizer = torch.optim.SGD(
            self.net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.steps = 0
        self.logged: list[float] = []

    def terms(self, views: Sequence[Tensor], labels: Tensor, epoch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """L_ce^p, L_ce^t, L_pe, L_pm (Eq. 1-6, 9)."""
        logits, ensemble = self.net(views)
        with torch.no_grad():
            taught, _ = self.teacher(views)
        m, t = len(logits), self.temperature
        w = math.exp(-5 * (1 - epoch / self.ramp_up) ** 2) if epoch < self.ramp_up else 1.0
        ce_peers, distil_ensemble, distil_mean = torch.zeros(3, device=labels.device)
        for z in logits:
            ce_peers = ce_peers + F.cross_entropy(z, labels)
        for z in logits:
            distil_ensemble = distil_ensemble + w * kl(ensemble.detach(), z, t)
        for j, z in enumerate(logits):
            for i, teacher in enumerate(taught):
                if i != j:
                    distil_mean = distil_mean + w * kl(teacher, z, t) / (m - 1)
        return ce_peers, F.cross_entropy(ensemble, labels), distil_ensemble, distil_mean

    def step(self, views: Sequence[Tensor], labels: Tensor, epoch: int) -> None:
        loss = sum(self.terms(views, labels, epoch), torch.zeros((), device=labels.device))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        phi = min(1 - 1 / self.steps, self.beta)
        for mean, p in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
            mean.data.mul_(phi).add_(p.data, alpha=1 - phi)
        self.logged.append(loss.item())


def kl(teacher: Tensor, student: Tensor, t: float) -> Tensor:
    """T^2 KL(softmax_T(teacher) || softmax_T(student)), as it is usually written."""
    said, target = F.log_softmax(student / t, dim=1), F.softmax(teacher / t, dim=1)
    return F.kl_div(said, target, reduction="batchmean") * t * t


def usual(size: Size) -> NaivePCL:
    """The reference, ready to train."""
    make = models.factory(size.model, size.classes, size.shape[0])
    return NaivePCL([make() for _ in range(size.peers)])


def stepper(size: Size) -> Run:
    """One step of it on a batch that is already augmented."""
    training, (views, labels) = usual(size), inputs(size.peers, size.batch, size)
    return lambda: training.step(views, labels, EPOCH)


class PerView(Dataset[tuple[list[Tensor], int]]):
    """Each view of an image opened and transformed by itself."""

    def __init__(
        self, pixels: NDArray[np.uint8], labels: Sequence[int], views: int, transform: Callable[[Any], Tensor]
    ) -> None:
        self.pixels, self.labels, self.views, self.transform = pixels, labels, views, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int]:
        views = [self.transform(Image.fromarray(self.pixels[index])) for _ in range(self.views)]
        return views, self.labels[index]


def loader(size: Size, images: int) -> DataLoader[Any]:
    """These images in a random order, by worker processes that stay between epochs."""
    v1 = import_torchvision("torchvision.transforms")
    data = Noise(images)
    data.load()
    steps = [v1.RandomCrop(32, 4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(data.mean, data.std)]
    pixels = np.stack([np.asarray(data.original(i)) for i in range(images)])
    labels = data.labels["train"].tolist()
    return DataLoader(
        PerView(pixels, labels, size.peers, v1.Compose(steps)),
        size.batch,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context="fork",
        pin_memory=device().type == "cuda",
    )


def turns(size: Size) -> Run:
    """A turn of training, data included: the steps of one short epoch."""
    training, batches, where = usual(size), loader(size, size.steps * size.batch), device()

    def turn() -> None:
        for views, labels in batches:
            training.step(
                [view.to(where, non_blocking=True) for view in views],
                labels.to(where, non_blocking=True),
                EPOCH,
            )

    return turn
