"""OwnMean against NumPy: its terms, its gradients, its averages and its cost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet
from tests.helpers.device import HAS_FLOAT64
from tests.helpers.reference import ce, kl

pytestmark = pytest.mark.skipif(not HAS_FLOAT64, reason="this device has no float64")
BATCH = 6


def build(**options: float) -> coterie.OwnMean:
    """Return the method with a mean model that differs from the network, as after some steps."""
    method = coterie.OwnMean(PeerNet(TinyNet, 1), **options).double()
    assert method.mean_method is not None
    with torch.no_grad():
        for p in method.mean_method.parameters():
            p.mul_(1.3)
    return method


def batch() -> tuple[list[Tensor], Tensor]:
    return list(torch.randn(2, BATCH, 3, 8, 8, dtype=torch.float64)), torch.randint(5, (BATCH,))


@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "weight": 0.5}])
def test_terms(options: dict[str, float]) -> None:
    """The network sees the first view in training mode, its mean model the second in evaluation mode."""
    method, (views, y) = build(**options), batch()
    assert method.mean_method is not None
    terms = {name: value.item() for name, value in method(views, y, 0.0).items()}
    network, mean = method.net.peers[0], method.mean_method.net.peers[0]
    assert network.training and not any(m.training for m in mean.modules())
    with torch.no_grad():
        z, teacher = network(views[0]).numpy(), mean(views[1]).numpy()
    t, weight = options.get("temperature", 3.0), options.get("weight", 1.0)
    expected = {"ce": ce(z, y.numpy()), "distil_mean": weight * kl(teacher, z, t)}
    assert terms == pytest.approx({**expected, "loss": sum(expected.values())}, rel=1e-6)


def test_gradients_reach_the_network_alone() -> None:
    """Of the logits by central differences; the mean model gets none."""
    method, (views, y) = build(), batch()
    assert method.mean_method is not None
    z = torch.randn(BATCH, 5, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        teacher = method.mean_method.net.peers[0](views[1]).numpy()
    method.net.peers[0].forward = lambda images: z  # type: ignore[method-assign]
    (gradient,) = torch.autograd.grad(method(views, y, 0.0)["loss"], z)

    def loss(logits: np.ndarray) -> float:  # type: ignore[type-arg]
        return ce(logits, y.numpy()) + kl(teacher, logits, 3.0)

    for i, c in np.ndindex(BATCH, 5):
        step = np.zeros((BATCH, 5))
        step[i, c] = 1e-5
        at = z.detach().numpy()
        slope = (loss(at + step) - loss(at - step)) / 2e-5
        assert gradient[i, c].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)

    method = build()
    method(views, y, 0.0)["loss"].backward()
    assert method.mean_method is not None
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in method.net.parameters())
    assert all(p.grad is None and not p.requires_grad for p in method.mean_method.parameters())


def test_the_mean_model_is_deployed() -> None:
    """It is the running average of the network's weights (Eq. 7-8 of PCL), and a network of the user's class."""
    torch.manual_seed(0)
    method, (views, y) = coterie.OwnMean(PeerNet(TinyNet, 1), beta=0.6).double(), batch()
    optimizer = torch.optim.SGD(method.net.parameters(), lr=0.1)
    average = {name: p.detach().clone() for name, p in method.net.peers[0].named_parameters()}
    for step in range(1, 6):
        method(views, y, 0.0)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        keep = min(1 - 1 / step, 0.6)
        for name, p in method.net.peers[0].named_parameters():
            average[name] = keep * average[name] + (1 - keep) * p.detach()
    assert method.deployed == "mean1" and set(method.predictors()) == {"peer1", "mean1"}
    student = method.deploy()
    assert type(student) is TinyNet
    for name, p in student.named_parameters():
        torch.testing.assert_close(p.detach(), average[name])
    assert method.mean_method is not None
    expected = method.mean_method.net.peers[0].state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in student.state_dict().items())


def test_cost() -> None:
    """A third of a step more, for the forward pass of the mean model."""
    assert coterie.OwnMean.view_count(1) == 2
    assert coterie.OwnMean.step_cost(1, 1.0) == pytest.approx(4 / 3)
    assert coterie.OwnMean.evaluation_cost(1, 1.0) == 2
    with pytest.raises(coterie.InputError, match="OwnMean takes 2 views of each image, not 1"):
        build()(batch()[0][:1], torch.zeros(BATCH, dtype=torch.long), 0.0)


def test_training_follows_the_recipe(tmp_path: Path) -> None:
    """The average follows `ema_horizon`."""
    out = tmp_path / "run"
    run = coterie.train(
        model="resnet8", data="digits", method="OwnMean", epochs=2, mix="CutMix", ema_horizon=0.5, out=out
    )
    resolved = json.loads((out / "resolved.json").read_text())
    assert resolved["method.beta"] == pytest.approx(1 - 2 / run.metrics[-1]["step"])
    assert run.metrics[-1]["deployed"] == "mean1"
    assert set(run.metrics[-1]["terms"]) == {"ce", "distil_mean", "loss"}
