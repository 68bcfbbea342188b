"""What is measured: each method with its network and optimiser as training builds them, and one step of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..config.options import from_options
from ..config.recipe import PrecisionName, Recipe
from ..methods import Method, available
from ..peers.cuts import Cut, list_cuts
from ..peers.layout import channels_last
from ..peers.net import PeerNet
from ..training.memory import keep_freed_memory
from ..training.precision import Precision
from ..training.step import Step

SUBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in available()},
    "PCL w/o InAu": ("PCL", {"input_augmentation": False}),
}
"""The rows of the table: a method and its options. KD's teacher is another network like the student."""

EPOCH = 80  # the ramp-up has ended: every term counts


@dataclass(frozen=True)
class BenchSize:
    """Network, batch and number of rounds; `steps` is the length of a turn that includes data."""

    model: str
    batch: int
    rounds: int
    steps: int
    peers: int = 3
    classes: int = 100
    shape: tuple[int, int, int] = (3, 32, 32)

    def make_network(self) -> nn.Module:
        return models.factory(self.model, self.classes, self.shape[0])()


FULL = BenchSize("resnet32", batch=128, rounds=9, steps=4)
QUICK = BenchSize("resnet8", batch=32, rounds=3, steps=3)


def default_device() -> torch.device:
    return Recipe().torch_device()


def build_method(
    subject: str,
    size: BenchSize,
    peers: int | None = None,
    make: Callable[[], nn.Module] | None = None,
    checkpoint_activations: bool = False,
    device: torch.device | None = None,
) -> Method:
    """Build a subject's method ready to train, in a process set up as training does.

    `peers` and `make` replace the number of peers and the network of the size, `device` the default one.
    """
    keep_freed_memory()
    name, options = SUBJECTS[subject]
    cls: Any = available()[name]
    make = make or size.make_network
    cut: Any = make().default_cut if cls.trains == "branches" else None
    count = 1 if cls.trains == "one network" else peers or size.peers
    net = PeerNet(make, count, cut, torch.zeros(2, *size.shape), checkpoint_activations=checkpoint_activations)
    method: Method = cls(net, **options, **({"teacher": make()} if name == "KD" else {}))
    channels_last(method.to(device or default_device()), net.peers, size.shape)
    method.prepare()
    return method.train()


def build_step(method: Method, format: PrecisionName = "32") -> Step:
    """Build the training step of a method on its device, with the default optimiser."""
    device = next(method.parameters()).device
    return Step(method, from_options({}).build_optimizer(method), Precision(device, format))


def repeat_step(step: Step, size: BenchSize) -> Callable[[], dict[str, Tensor]]:
    """Return a call that takes this step on always the same batch."""
    views, labels = random_batch(step.method.views, size)
    return lambda: step(views, labels, EPOCH)


def random_batch(views: int, size: BenchSize) -> tuple[list[Tensor], Tensor]:
    """Return random views and labels in the layout of a data set's."""
    device = default_device()
    images = [torch.randn(size.batch, *size.shape, device=device) for _ in range(views)]
    return images, torch.randint(size.classes, (size.batch,), device=device)


def stated_cost(subject: str, cut: Cut, peers: int) -> float:
    """Return a step's cost in plain steps as the method states it, by multiply-adds."""
    name, options = SUBJECTS[subject]
    return available()[name].step_cost(peers, cut.share, options)


def default_cut_of(size: BenchSize) -> Cut:
    """Return the network's default cut, and how the work divides there."""
    network: Any = size.make_network()
    return next(c for c in list_cuts(network, torch.zeros(2, *size.shape)) if c.name == network.default_cut)
