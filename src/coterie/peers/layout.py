"""Channels-last weights, with which convolutions are fastest, where a network's own code allows them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from .trace import evaluating


def channels_last(module: nn.Module, networks: Iterable[nn.Module], shape: Iterable[int]) -> None:
    """Lay out the weights of a module; as they were, if one of its networks cannot compute that way.

    A network that flattens its map with `view` cannot: what its convolutions give is then not contiguous.
    """
    images = next(module.parameters()).new_zeros(2, *shape)
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        for network in networks:
            with evaluating(network):
                network(images)
    except RuntimeError:
        module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
