"""Take a step with a copy of a method, before anything is trained."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..data import Data
from .base import Method


def trial_step(method: Method, data: Data) -> Method:
    """Return a copy of a method with the gradients of one step on a few images; restores the RNG state."""
    trial = copy.deepcopy(method).train()
    device = next(trial.parameters()).device
    views, labels = data.views(np.arange(min(16, data.train_size)), method.views, seed=0, epoch=0)
    views, labels = [view.to(device) for view in views], labels.to(device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # At the end of any ramp-up: every term has its weight.
        trial(views, labels, 10**6)["loss"].backward()
    return trial


def peers_stay_identical(method: Method, data: Data) -> bool:
    """Tell whether peers that start equal would stay so: neither their views, dropout nor heads make them differ.

    A step is tried: the last two peers, no leader being among them, get the same gradients or not.
    """
    peers = method.net.peers[-2:]
    if len(peers) < 2 or not _same(*(list(peer.state_dict().values()) for peer in peers)):
        return False
    return _same(*([p.grad for p in peer.parameters()] for peer in trial_step(method, data).net.peers[-2:]))


def _same(one: Sequence[Tensor | None], two: Sequence[Tensor | None]) -> bool:
    return len(one) == len(two) and all(
        a is b or (a is not None and b is not None and a.shape == b.shape and torch.equal(a, b))
        for a, b in zip(one, two, strict=True)
    )


def uses_cross_entropy(method: Method, data: Data) -> bool:
    """Try a step and tell whether the method computes a cross-entropy by `method.cross_entropy`."""
    calls: list[bool] = []
    with method.cross_entropy.register_forward_hook(lambda *_: calls.append(True)):
        trial_step(method, data)
    return bool(calls)


SOFTMAX_LOSSES = ("log_softmax", "cross_entropy", "nll_loss")
"""Functions of torch that only a loss over exclusive classes calls; attention calls `softmax`."""


def softmax_losses(method: Method, data: Data) -> list[str]:
    """Try a step and return which functions for the loss of one label an image it calls."""
    with _Calls() as calls:
        trial_step(method, data)
    return calls.names


class _Calls(TorchFunctionMode):
    """Collect the names of `SOFTMAX_LOSSES` that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in SOFTMAX_LOSSES:
            self.names.append(name)
        return func(*args, **(kwargs or {}))
