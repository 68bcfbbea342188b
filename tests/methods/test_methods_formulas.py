"""Every method's terms on random logits, features, maps and trunk outputs against NumPy, for 2, 3 and 4 peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie
from coterie.methods import Method
from coterie.peers.net import PeerNet, Peers
from tests.helpers.common import TinyNet
from tests.helpers.device import HAS_FLOAT64, find_device
from tests.helpers.reference import Array, batch_norm, ce, contrast, depthwise, kl, ramp, softmax

pytestmark = pytest.mark.skipif(not HAS_FLOAT64, reason="this device has no float64")

EPOCH, ALPHA, T = 30, 80, 3.0
W = ramp(EPOCH, ALPHA)


@dataclass
class Case:
    """Random outputs of m peers, for torch and for NumPy."""

    peers: Peers
    labels: Tensor

    def numpy(self) -> tuple[Array, list[Array], list[Array], Array, np.ndarray[Any, Any]]:
        p = self.peers
        features = [f.cpu().numpy() for f in p.features if f is not None]
        maps = [f.cpu().numpy() for f in p.maps if f is not None]
        return p.logits.cpu().numpy(), features, maps, p.trunk[0].cpu().numpy(), self.labels.cpu().numpy()


def case(m: int, batch: int = 12) -> Case:
    def random(*shape: int) -> Tensor:
        return 2 * torch.randn(*shape, dtype=torch.float64).to(find_device())

    peers = Peers(
        random(m, batch, 5),
        tuple(random(batch, 16) for _ in range(m)),
        tuple(random(batch, 16, 4, 4) for _ in range(m)),
        (random(batch, 16, 4, 4),),
    )
    return Case(peers, torch.randint(5, (batch,)).to(find_device()))


def terms(name: str, inputs: Case, **options: Any) -> tuple[dict[str, float], Method]:
    """What the method makes of these outputs, in place of its own peers'."""
    m = len(inputs.peers.logits)
    cls = getattr(coterie, name)
    one = cls.trains == "one network"
    net = PeerNet(TinyNet, 1 if one else m, "stage3" if cls.trains == "branches" else None)
    method = cls(net, **options).double().to(find_device())
    for parameter in method.parameters():  # also where they start at 0 and 1
        parameter.data = torch.randn_like(parameter)
    method.net.forward = lambda *args, **kwargs: inputs.peers
    views = torch.zeros(len(inputs.labels), 3, 8, 8, dtype=torch.float64, device=find_device())
    values = {key: value.item() for key, value in method([views] * method.views, inputs.labels, EPOCH).items()}
    assert values["loss"] == pytest.approx(sum(v for k, v in values.items() if k != "loss"))
    return values, method


def array(parameter: Tensor) -> Array:
    array: Array = parameter.detach().cpu().numpy()
    return array


def matches(values: dict[str, float], **expected: float) -> None:
    assert {k: v for k, v in values.items() if k != "loss"} == pytest.approx(expected, rel=1e-6)


several = pytest.mark.parametrize("m", [2, 3, 4])


@several
def test_dml(m: int) -> None:
    inputs = case(m)
    z, _, _, _, y = inputs.numpy()
    distil = sum(kl(z[j], z[k], T) for k in range(m) for j in range(m) if j != k) / (m - 1)
    values, method = terms("DML", inputs)
    matches(values, ce_peers=sum(ce(z[k], y) for k in range(m)), distil_peers=distil)
    np.testing.assert_allclose(method.ensemble(inputs.peers), z.mean(0))
    original, _ = terms("DML", inputs, temperature=1.0)
    distil = sum(kl(z[j], z[k], 1.0) for k in range(m) for j in range(m) if j != k) / (m - 1)
    assert original["distil_peers"] == pytest.approx(distil)


@several
def test_cl(m: int) -> None:
    inputs = case(m)
    z, _, _, _, y = inputs.numpy()

    def distil(t: float) -> float:
        return sum(kl(np.mean([z[j] for j in range(m) if j != h], axis=0), z[h], t) for h in range(m))

    ce_peers = sum(ce(z[h], y) for h in range(m))
    matches(terms("CL", inputs)[0], ce_peers=ce_peers, distil_peers=W * distil(T))
    original, _ = terms("CL", inputs, temperature=2.0, ramp_up=0, weight=0.5, ce_weight=0.5)
    matches(original, ce_peers=0.5 * ce_peers, distil_peers=0.5 * distil(2.0))


@several
def test_one(m: int) -> None:
    inputs = case(m)
    z, _, _, trunk, y = inputs.numpy()
    values, method = terms("ONE", inputs)
    linear, norm = method.gate[0], method.gate[1]
    scores = trunk.mean((2, 3)) @ array(linear.weight).T + array(linear.bias)
    gate = softmax(np.maximum(batch_norm(scores, array(norm.weight), array(norm.bias)), 0))
    teacher = np.einsum("bm,mbc->bc", gate, z)
    matches(
        values,
        ce_peers=sum(ce(z[j], y) for j in range(m)),
        ce_ensemble=ce(teacher, y),
        distil_ensemble=W * sum(kl(teacher, z[j], T) for j in range(m)),
    )
    np.testing.assert_allclose(method.ensemble(inputs.peers).detach(), teacher)


@several
def test_ffl(m: int) -> None:
    inputs = case(m)
    z, _, maps, _, y = inputs.numpy()
    values, method = terms("FFL", inputs)
    spatial, norm1, _, point, norm2, _ = method.fuse
    x = depthwise(np.concatenate(maps, axis=1), array(spatial.weight))
    x = np.maximum(batch_norm(x, array(norm1.weight), array(norm1.bias)), 0)
    x = np.einsum("bchw,dc->bdhw", x, array(point.weight)[:, :, 0, 0])
    x = np.maximum(batch_norm(x, array(norm2.weight), array(norm2.bias)), 0)
    fused = x.mean((2, 3)) @ array(method.classifier.weight).T + array(method.classifier.bias)
    matches(
        values,
        ce_peers=sum(ce(z[j], y) for j in range(m)),
        ce_fused=ce(fused, y),
        distil_fused=W * sum(kl(fused, z[j], T) for j in range(m)),
        distil_mean=W * kl(z.mean(0), fused, T),
    )
    np.testing.assert_allclose(method.ensemble(inputs.peers).detach(), fused)


@several
@pytest.mark.parametrize("leader", [True, False])
def test_okddip(m: int, leader: bool) -> None:
    inputs = case(m)
    z, features, _, _, y = inputs.numpy()
    values, method = terms("OKDDip", inputs, leader=leader)
    q, k = array(method.query.weight), array(method.key.weight)
    peers = range(1, m) if leader else range(m)
    distil = 0.0
    for a in peers:
        scores = np.stack([np.sum((features[a] @ q.T) * (features[b] @ k.T), axis=1) for b in peers], axis=1)
        attention = softmax(scores)
        target = sum(attention[:, i : i + 1] * z[b] for i, b in enumerate(peers))
        distil += kl(target, z[a], T)
    mean = np.mean([z[a] for a in peers], axis=0)
    matches(
        values,
        ce_peers=sum(ce(z[a], y) for a in peers),
        ce_leader=ce(z[0], y) if leader else 0.0,
        distil_peers=W * distil,
        distil_leader=W * kl(mean, z[0], T) if leader else 0.0,
    )
    np.testing.assert_allclose(method.ensemble(inputs.peers), mean)
    assert method.deployed == "peer1"  # the leader, where there is one


@several
@pytest.mark.parametrize("teacher", ["naive", "mean", "min_logit"])
def test_kdcl(m: int, teacher: str) -> None:
    inputs = case(m)
    z, _, _, _, y = inputs.numpy()
    target = np.empty_like(z[0])
    for i, label in enumerate(y):
        if teacher == "naive":
            losses = [-np.log(softmax(z[k, i])[label]) for k in range(m)]
            target[i] = z[int(np.argmin(losses)), i]
        elif teacher == "mean":
            target[i] = z[:, i].mean(0)
        else:
            target[i] = np.min([z[k, i] - z[k, i, label] for k in range(m)], axis=0)
    values, method = terms("KDCL", inputs, teacher=teacher)
    matches(
        values,
        ce_peers=sum(ce(z[k], y) for k in range(m)),
        distil_ensemble=sum(kl(target, z[k], T) for k in range(m)),
    )
    assert method.views == m


@several
def test_mcl(m: int) -> None:
    inputs = case(m)
    z, features, _, _, y = inputs.numpy()
    values, method = terms("MCL", inputs, width=8)
    embedded = []
    for f, embed in zip(features, method.embed, strict=True):
        hidden = np.maximum(f @ array(embed[0].weight).T + array(embed[0].bias), 0)
        v = hidden @ array(embed[2].weight).T + array(embed[2].bias)
        embedded.append(v / np.linalg.norm(v, axis=1, keepdims=True))
    s = [[embedded[i] @ embedded[j].T / 0.07 for j in range(m)] for i in range(m)]
    pairs = [(i, j) for i in range(m) for j in range(m) if i != j]
    matches(
        values,
        ce_peers=sum(ce(z[k], y) for k in range(m)),
        contrast=0.1 * sum(contrast(s[i][i], y) for i in range(m)),
        contrast_across=0.1 * sum(contrast(s[i][j], y) for i, j in pairs),
        distil_contrast=sum(kl(s[j][j], s[i][i], T) for i, j in pairs),
        distil_across=sum(kl(s[j][i], s[i][j], T) for i, j in pairs),
    )


def test_contrast_without_any_positive_is_zero_and_has_no_nan_gradient() -> None:
    from coterie.methods.losses import contrast as ours
    from coterie.methods.losses import reduce

    for batch in (1, 4):
        s = torch.randn(2, batch, batch, requires_grad=True)
        loss = reduce(*ours(s, torch.arange(batch)))
        loss.backward()
        assert loss.item() == 0 and s.grad is not None and torch.isfinite(s.grad).all()


def test_kd() -> None:
    inputs = case(1)
    z, _, _, _, y = inputs.numpy()
    teacher = TinyNet().double()
    values, _ = terms("KD", inputs, teacher=teacher)
    with torch.no_grad():
        target = teacher.eval()(torch.zeros(12, 3, 8, 8, dtype=torch.float64)).numpy()
    matches(values, ce=ce(z[0], y), distil=kl(target, z[0], T))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 6])
def test_pcl(m: int) -> None:
    inputs = case(m)
    z, features, _, _, y = inputs.numpy()
    values, method = terms("PCL", inputs, peer_teacher="mutual")
    teacher = np.concatenate(features, axis=1) @ array(method.classifier.weight).T + array(method.classifier.bias)
    mutual = sum(kl(z[j], z[k], T) for k in range(m) for j in range(m) if j != k) / max(1, m - 1)
    expected = {
        "ce_peers": sum(ce(z[j], y) for j in range(m)),
        "ce_ensemble": ce(teacher, y),
        "distil_ensemble": W * sum(kl(teacher, z[j], T) for j in range(m)),
        "distil_mean": W * mutual,
    }
    matches(values, **expected)
    summed, _ = terms("PCL", inputs, peer_teacher="mutual", ensemble="sum")
    assert summed["ce_ensemble"] == pytest.approx(ce(z.sum(0), y))
    assert summed["distil_ensemble"] == pytest.approx(W * sum(kl(z.sum(0), z[j], T) for j in range(m)))


@several
@pytest.mark.parametrize("peer_teacher", ["mean", "own_mean"])
@pytest.mark.parametrize("mean_view", ["own", "taught"])
def test_pcl_mean_teachers(m: int, peer_teacher: str, mean_view: str) -> None:
    """What the mean teachers say is computed by the averaged peers themselves; who hears it, by NumPy."""
    method = coterie.PCL(
        PeerNet(TinyNet, m, "stage3"), peer_teacher=peer_teacher, mean_view=mean_view, mean_batch_norm="average"
    ).double()
    for mean in method.mean.average.parameters():  # something else than the peers
        mean.data += 0.1 * torch.randn_like(mean)
    views = [torch.randn(6, 3, 8, 8, dtype=torch.float64) for _ in range(m)]
    labels = torch.randint(5, (6,))
    values = method(views, labels, EPOCH)
    z = [peer(view).detach().numpy() for peer, view in zip(method.net.peers, views, strict=True)]
    expected = 0.0
    for j in range(m):
        for k in range(m) if peer_teacher == "mean" else [j]:
            if k != j or peer_teacher == "own_mean":
                seen = views[k] if mean_view == "own" else views[j]
                teacher = method.mean_method.net.peers[k](seen).detach().numpy()
                expected += kl(teacher, z[j], T) / (m - 1 if peer_teacher == "mean" else 1)
    assert values["distil_mean"].item() == pytest.approx(W * expected, rel=1e-6)


def test_baseline_over_views() -> None:
    method = coterie.Baseline(PeerNet(TinyNet, 1), views=3).double().eval()
    views, labels = [torch.randn(4, 3, 8, 8).double() for _ in range(3)], torch.randint(5, (4,))
    expected = np.mean([ce(method.net.peers[0](v).detach().numpy(), labels.numpy()) for v in views])
    assert method(views, labels, 0)["loss"].item() == pytest.approx(expected)
