"""Every formula of the specification (pcl.md, section 2) against an independent NumPy computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import coterie
from coterie.methods.losses import cross_entropy, distil, peer_divergences, ramp_up, reduce
from coterie.peers.ema import phi
from tests.helpers.common import TinyNet
from tests.helpers.reference import ce as np_ce
from tests.helpers.reference import kl

T = 3.0


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_loss_functions(m: int) -> None:
    rng = np.random.default_rng(m)
    z, teachers, single = rng.normal(0, 4, (m, 6, 7)), rng.normal(0, 4, (m, 6, 7)), rng.normal(0, 4, (6, 7))
    y = rng.integers(0, 7, 6)
    ce = cross_entropy(torch.tensor(z), torch.tensor(y))
    assert ce.shape == (m, 6) and ce.mean(-1).tolist() == pytest.approx([np_ce(z[j], y) for j in range(m)])
    each = distil(torch.tensor(single), torch.tensor(z), T)
    assert each.shape == (m, 6) and each.mean(-1).tolist() == pytest.approx(
        [kl(single, z[j], T) for j in range(m)]
    )
    others = sum(kl(teachers[k], z[j], T) for j in range(m) for k in range(m) if k != j)
    pairs = peer_divergences(torch.tensor(teachers), torch.tensor(z), T)
    assert pairs.shape == (m, m, 6) and float(reduce(pairs, scale=T**2)) == pytest.approx(others)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("epoch", [0, 40, 200])
def test_pcl_terms(m: int, epoch: int) -> None:
    """The whole objective (Eq. 1) from the networks' own outputs, computed once more by hand."""
    net = coterie.PeerNet(TinyNet, m, "stage3", torch.randn(2, 3, 8, 8))
    method = coterie.PCL(net, temperature=T, ramp_up=80, weight=0.7)
    with torch.no_grad():  # move the mean teachers away from the students
        for p in method.mean.parameters():
            p.add_(0.1 * torch.randn_like(p))
    method.eval()  # so that plain forward passes below see the same batch-norm
    views, y = [torch.randn(5, 3, 8, 8) for _ in range(m)], torch.randint(5, (5,))
    terms = {k: v.item() for k, v in method(views, y, epoch).items()}

    with torch.no_grad():
        z = [p(v).numpy().astype(float) for p, v in zip(net.peers, views, strict=True)]
        z_mean = [p(v).numpy().astype(float) for p, v in zip(method.mean.average.net.peers, views, strict=True)]
        pooled = [
            torch.relu(p.stage3(p.stage2(p.stage1(p.stem(v))))).mean((2, 3))
            for p, v in zip(net.peers, views, strict=True)
        ]
        weight, bias = method.classifier.weight.numpy(), method.classifier.bias.numpy()
        z_t = np.concatenate([f.numpy() for f in pooled], axis=1).astype(float) @ weight.T + bias
    w = 0.7 * (math.exp(-5 * (1 - epoch / 80) ** 2) if epoch <= 80 else 1.0)
    expected = {
        "ce_peers": sum(np_ce(z[j], y.numpy()) for j in range(m)),
        "ce_ensemble": np_ce(z_t, y.numpy()),
        "distil_ensemble": w * sum(kl(z_t, z[j], T) for j in range(m)),
        "distil_mean": w
        / max(m - 1, 1)
        * sum(kl(z_mean[k], z[j], T) for j in range(m) for k in range(m) if k != j),
    }
    assert set(terms) == {"loss", *expected}
    for name, value in expected.items():
        assert terms[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert terms["loss"] == pytest.approx(sum(expected.values()), rel=1e-4)


def test_ramp_up_at_the_values_of_the_specification() -> None:
    assert ramp_up(0, 80) == pytest.approx(math.exp(-5)) == pytest.approx(0.0067, abs=5e-5)
    assert ramp_up(40, 80) == pytest.approx(0.2865, abs=5e-5)
    assert ramp_up(80, 80) == ramp_up(81, 80) == ramp_up(300, 80) == 1.0
    assert ramp_up(40, 80, weight=0.1) == pytest.approx(0.02865, abs=5e-6)
    assert ramp_up(0, 0) == 1.0  # no ramp-up at all
    for epoch, length in ((0, 80), (40.5, 80), (80, 80), (300, 80), (0, 0), (3, 0)):  # as in a compiled pass
        w = float(ramp_up(torch.tensor(float(epoch)), length, 0.7))
        assert w == pytest.approx(ramp_up(epoch, length, 0.7))
    values = [ramp_up(e, 80) for e in range(100)]
    assert values == sorted(values)


def test_phi_at_the_values_of_the_specification() -> None:
    assert phi(1, 0.999) == 0.0
    assert phi(2, 0.999) == 0.5
    assert phi(1000, 0.999) == 0.999
    assert phi(5000, 0.999) == 0.999
    assert phi(999, 0.999) < 0.999


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_extreme_logits_stay_finite(dtype: torch.dtype) -> None:
    big = 1e4
    z = torch.tensor([[big, -big, 0.0], [-big, big, 0.0]], dtype=dtype, requires_grad=True)
    other = torch.tensor([[-big, big, 0.0], [big, -big, 0.0]], dtype=dtype)
    loss = (
        reduce(distil(other, z, T))
        + reduce(cross_entropy(z, torch.tensor([1, 0])))
        + reduce(peer_divergences(torch.stack([z, other]), torch.stack([other, z]), T))
    )
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(z.grad).all()


def test_half_precision_is_widened_before_the_temperature_divides() -> None:
    """Dividing first rounds the logits once more, and overflows below T = 1."""
    z, t = (10 * torch.randn(5, 7)).half(), (1e4 * torch.randn(5, 7)).half()
    for temperature in (T, 0.1):
        assert torch.equal(distil(t, z, temperature), distil(t.float(), z.float(), temperature))


def test_kl_is_averaged_over_the_batch_not_over_the_classes() -> None:
    z, t = torch.randn(4, 10), torch.randn(4, 10)
    doubled = distil(torch.cat([t, t]), torch.cat([z, z]), T)
    assert float(reduce(doubled)) == pytest.approx(float(reduce(distil(t, z, T))))
    assert float(reduce(distil(t, z, T))) == pytest.approx(
        float(
            T**2 * torch.nn.functional.kl_div((z / T).log_softmax(1), (t / T).softmax(1), reduction="batchmean")
        ),
        rel=1e-5,
    )
