"""MeanPeers: the averaged copy of the peers and of what is trained beside them (Eq. 7-8)."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import InputError


def phi(step: int, beta: float) -> float:
    """Return the smoothing coefficient min(1 - 1/g, beta) of step g = 1, 2, ... (Eq. 8)."""
    return min(1.0 - 1.0 / step, beta)


class MeanPeers(nn.Module):
    """An exponential moving average of a module's weights; modules shared inside it stay shared.

    Args:
        source: what is averaged: a method with its peers and heads. It is copied.
        beta: the smoothing coefficient's upper bound; its horizon is 1/(1-beta) steps.
        batch_norm: 'own': the copy's batch-norm layers normalise by the batch in training and keep running
            statistics of their own, as the copy's activations are its own; for a copy that is run in training.
            'average': they are never in training mode and the source's running statistics are averaged too.
            Either way, layers that the network's own `train` keeps out of training stay out of it.
    """

    def __init__(
        self, source: nn.Module, beta: float = 0.999, batch_norm: Literal["own", "average"] = "average"
    ) -> None:
        super().__init__()
        if not 0 <= beta <= 1:
            raise InputError(f"beta, the smoothing coefficient of averaged weights, is from 0 to 1, not {beta}.")
        self.average = copy.deepcopy(source).requires_grad_(False)
        self.beta = beta
        self.batch_norm = batch_norm
        self.step = 0
        self._names = self._averaged_and_copied()
        self.train()

    def train(self, mode: bool = True) -> MeanPeers:
        """Put only batch-norm layers with statistics of their own in training mode; dropout stays off."""
        super().train(mode)
        for module in self.average.modules():
            module.training &= isinstance(module, _BatchNorm) and self.batch_norm == "own"
        return self

    @torch.no_grad()
    def update(self, source: nn.Module) -> None:
        """Update theta_mean <- phi(g) theta_mean + (1 - phi(g)) theta, after optimiser step g (Eq. 7)."""
        self.step += 1
        weight = 1.0 - phi(self.step, self.beta)
        averaged, copied = self._names
        means, current = _tensors(self.average), _tensors(source)
        torch._foreach_lerp_([means[n] for n in averaged], [current[n] for n in averaged], weight)
        for name in copied:
            if name in current:  # a buffer that is not saved may be gone: of a replaced loss, for example
                means[name].copy_(current[name])

    def _averaged_and_copied(self) -> tuple[list[str], list[str]]:
        """Name what is averaged, and buffers that are neither that nor the copy's own: masks, tables."""
        averages = self.batch_norm == "average"
        statistics = {
            f"{prefix}.{n}"
            for prefix, module in self.average.named_modules()
            if isinstance(module, _BatchNorm)
            for n, _ in module.named_buffers()
        }
        buffers = list(self.average.named_buffers())
        floats = [n for n, b in buffers if averages and n in statistics and b.is_floating_point()]
        kept = floats if averages else statistics
        averaged = [n for n, _ in self.average.named_parameters()] + floats
        return averaged, [n for n, _ in buffers if n not in kept]

    def get_extra_state(self) -> dict[str, int]:
        return {"step": self.step}

    def set_extra_state(self, state: Any) -> None:
        self.step = int(state["step"])


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return tensors | dict(module.named_buffers(remove_duplicate=False))
