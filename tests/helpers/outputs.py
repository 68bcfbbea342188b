"""Random outputs of peers, methods that take them in place of their own, and their ensembles in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import coterie
from coterie.peers.net import PeerNet, Peers
from tests.helpers.common import TinyNet
from tests.helpers.reference import Array, batch_norm, depthwise, softmax

CLASSES, BATCH, M = 5, 7, 3


def outputs(m: int) -> tuple[Peers, list[Tensor]]:
    """Random outputs of m peers as leaves that receive gradients, and these leaves."""

    def leaf(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()

    logits = [leaf(BATCH, CLASSES) for _ in range(m)]
    features = [leaf(BATCH, 16) for _ in range(m)]
    maps = [leaf(BATCH, 16, 2, 2) for _ in range(m)]
    trunk = leaf(BATCH, 16, 2, 2)
    return Peers(torch.stack(logits), tuple(features), tuple(maps), (trunk,)), logits


def ensemble(name: str, method: Any, peers: Peers) -> Array:
    """z^t of PCL, z_e of ONE, z_f of FFL."""

    def array(tensor: Tensor) -> Array:
        values: Array = tensor.detach().numpy()
        return values

    if name == "PCL":
        features = np.concatenate([array(f) for f in peers.features], axis=1)
        return features @ array(method.classifier.weight).T + array(method.classifier.bias)
    if name == "ONE":
        linear, norm = method.gate[0], method.gate[1]
        scores = array(peers.trunk[0]).mean((2, 3)) @ array(linear.weight).T + array(linear.bias)
        gate = softmax(np.maximum(batch_norm(scores, array(norm.weight), array(norm.bias)), 0))
        return np.einsum("bm,mbc->bc", gate, array(peers.logits))
    spatial, norm1, _, point, norm2, _ = method.fuse
    x = depthwise(np.concatenate([array(f) for f in peers.maps], axis=1), array(spatial.weight))
    x = np.maximum(batch_norm(x, array(norm1.weight), array(norm1.bias)), 0)
    x = np.einsum("bchw,dc->bdhw", x, array(point.weight)[:, :, 0, 0])
    x = np.maximum(batch_norm(x, array(norm2.weight), array(norm2.bias)), 0)
    fused: Array = x.mean((2, 3)) @ array(method.classifier.weight).T + array(method.classifier.bias)
    return fused


def build(name: str, peers: Peers, trained: TinyNet, **further: Any) -> Any:
    cls = getattr(coterie, name)
    one = cls.trains == "one network"
    net = PeerNet(TinyNet, 1 if one else M, "stage3" if cls.trains == "branches" else None)
    options: dict[str, Any] = {"KD": {"teacher": trained}, "PCL": {"peer_teacher": "mutual"}}.get(name, {})
    method = cls(net, **options, **further).double()
    for parameter in method.parameters():
        parameter.data = torch.randn_like(parameter)
    if name == "OwnMean":
        method.mean_method.net.peers[0].load_state_dict(trained.state_dict())
    method.net.forward = lambda *args, **kwargs: peers
    return method
