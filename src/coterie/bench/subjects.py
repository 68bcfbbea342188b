"""What is measured: each method with its network and optimiser as the engine makes them, and one step of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..config.options import from_options
from ..config.recipe import Recipe
from ..methods import Method, available
from ..peers.cuts import Cut, list_cuts
from ..peers.layout import channels_last
from ..peers.net import PeerNet
from ..training.memory import keep_freed_memory
from ..training.precision import Precision
from ..training.step import Step
from .size import Size

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in available()},
    "PCL w/o InAu": ("PCL", {"input_augmentation": False}),
}
"""The rows of the table: a method and its options. KD's teacher is another network like the student."""

EPOCH = 80  # the ramp-up has ended: every term counts


def device() -> torch.device:
    """Where a training would run by default."""
    return Recipe().torch_device()


def made(
    row: str,
    size: Size,
    peers: int | None = None,
    make: Callable[[], nn.Module] | None = None,
    recompute: bool = False,
) -> Method:
    """A row's method, ready to train, in a process set up as the engine does.

    With another number of peers or another network if these are given.
    """
    keep_freed_memory()
    name, options = ROWS[row]
    cls: Any = available()[name]
    make = make or models.factory(size.model, size.classes, size.shape[0])
    cut = make().default_cut if cls.trains == "branches" else None
    count = 1 if cls.trains == "one network" else peers or size.peers
    example = torch.zeros(2, *size.shape)
    net = PeerNet(make, count, cut, example, checkpoint_activations=recompute)  # type: ignore[arg-type]
    method: Method = cls(net, **options, **({"teacher": make()} if name == "KD" else {}))
    channels_last(method.to(device()), net.peers, size.shape)
    method.prepare()
    return method.train()


@cache
def recipe() -> Recipe:
    """The default one: its optimiser is what trains here."""
    return from_options({})


def optimiser_step(method: Method) -> Step:
    """The engine's step of a method, with the default optimiser and precision."""
    return Step(method, recipe().build_optimizer(method), Precision(device()))


class Stepper:
    """One step of a method on a batch that is already augmented."""

    def __init__(self, method: Method, batch: int, size: Size) -> None:
        self.step = optimiser_step(method)
        self.views, self.labels = inputs(method.views, batch, size)

    def __call__(self) -> dict[str, Tensor]:
        return self.step(self.views, self.labels, EPOCH)


def inputs(views: int, batch: int, size: Size) -> tuple[list[Tensor], Tensor]:
    """Views and labels as a data set gives them."""
    where = device()
    made = [torch.randn(batch, *size.shape, device=where) for _ in range(views)]
    return made, torch.randint(size.classes, (batch,), device=where)


def theory(row: str, cut: Cut, peers: int) -> float:
    """What a step should cost in steps of the plain network, by multiply-adds: a backward pass is two forwards."""
    name, options = ROWS[row]
    return available()[name].step_cost(peers, cut.share, options)


def cut_of(size: Size) -> Cut:
    """The network's default cut, and how the work divides there."""
    network: Any = models.factory(size.model, size.classes, size.shape[0])()
    return next(c for c in list_cuts(network, torch.zeros(2, *size.shape)) if c.name == network.default_cut)
