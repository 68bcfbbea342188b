"""Fine-tuning: peers that start from the same given weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..errors import InputError, printable
from ..models.weights import read_weights
from .net import PeerNet


@torch.no_grad()
def init_from(net: PeerNet, file: Path | None = None, noise: float = 0.0) -> None:
    """Give every peer, trunk and branch, the weights of a file; without one, those of the first peer.

    Layers that give as many outputs as there are classes start anew, equal in all peers, where the file has other
    classes or none. `noise` is then added to the branches of all peers but the first, which is the one deployed,
    in standard deviations of each weight tensor.
    """
    first = net.peers[0]
    if file is not None:
        first.load_state_dict(_fitting(net, read_weights(file), file))
    shared = set(first.parameters())
    for peer in net.peers[1:]:
        peer.load_state_dict(first.state_dict())
        for p in peer.parameters():
            if noise and p not in shared and p.numel() > 1:
                p.add_(noise * p.std() * torch.randn_like(p))


def _fitting(net: PeerNet, weights: dict[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Return the file's weights, the network's own where classes differ; refuse any other difference."""
    own = net.peers[0].state_dict()
    differing = [name for name, w in own.items() if name not in weights or weights[name].shape != w.shape]
    fresh = {
        name
        for name in differing
        if own[name].dim() and len(own[name]) == net.num_classes
        if name not in weights or weights[name].shape[1:] == own[name].shape[1:]
    }
    missing = [name for name in own if name not in weights and name not in fresh]
    unexpected = [name for name in weights if name not in own]
    for problem, names in (("lacks", missing), ("has, unknown to the network,", unexpected)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InputError(f"{file} does not fit the network: it {problem} {', '.join(names[:3])}{more}.")
    for name in differing:
        if name not in fresh:
            shapes = f"{tuple(weights[name].shape)} in the file, {tuple(own[name].shape)} in the network"
            raise InputError(f"{file} does not fit the network: {name} is {shapes}.")
    if fresh:
        print(printable(f"{file}: other classes than the data, so {', '.join(sorted(fresh))} start anew."))
    return {name: w if name in fresh else weights[name] for name, w in own.items()}
