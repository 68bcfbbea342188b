"""`deploy` refuses averages that never followed a training, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import coterie
from coterie import PeerNet
from coterie.errors import InputError
from coterie.methods import Method
from tests.helpers.common import TinyNet

REFUSED = r"^\w+ was trained, but its averaged weights were never updated: call `after_step\(\)` after every"


def pcl() -> Method:
    return coterie.PCL(PeerNet(TinyNet, 2, "stage3", torch.zeros(2, 3, 8, 8)), beta=0.5)


def averaged_baseline() -> Method:
    method = coterie.Baseline(PeerNet(TinyNet, 1, example=torch.zeros(2, 3, 8, 8)))
    method.keep_mean(0.5)
    return method


def own_mean() -> Method:
    return coterie.OwnMean(PeerNet(TinyNet, 1, example=torch.zeros(2, 3, 8, 8)), beta=0.5)


averaging = pytest.mark.parametrize("build", [pcl, averaged_baseline, own_mean])


def batch(method: Method) -> tuple[list[Tensor], Tensor]:
    return [torch.randn(8, 3, 8, 8) for _ in range(method.views)], torch.arange(8) % 5


def optimizer_of(method: Method) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.1)


def train_without_averages(method: Method, steps: int = 1) -> None:
    optimizer = optimizer_of(method)
    for _ in range(steps):
        method(*batch(method), 80)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()


@averaging
@pytest.mark.parametrize("steps", [1, 3])
def test_averages_that_never_followed_are_refused_until_they_do(build: Callable[[], Method], steps: int) -> None:
    method = build()
    train_without_averages(method, steps)
    with pytest.raises(InputError, match=REFUSED) as refusal:
        method.deploy()
    assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(InputError, match=REFUSED):
        copy.deepcopy(method).eval().deploy()
    method.after_step()
    method.deploy()


@averaging
def test_an_untrained_method_is_deployed(build: Callable[[], Method]) -> None:
    method = build()
    method.deploy()
    with torch.no_grad():  # neither evaluation nor a loss that is only watched is training
        method(*batch(method), 0)
    method.eval()(*batch(method), 0)
    for p in method.net.parameters():
        nn.init.zeros_(p)
    assert type(method.deploy()) is TinyNet


def test_a_method_without_averages_is_deployed_without_after_step() -> None:
    method = coterie.CL(PeerNet(TinyNet, 2, "stage3", torch.zeros(2, 3, 8, 8)))
    train_without_averages(method)
    assert torch.equal(next(method.deploy().parameters()), next(method.net.peers[0].parameters()))


@averaging
def test_a_restored_method_is_deployed(build: Callable[[], Method]) -> None:
    trained = build()
    train_without_averages(trained)
    trained.after_step()
    restored = build()
    restored.load_state_dict(trained.state_dict())
    assert trained.state_dict().keys() == build().state_dict().keys()
    expected = trained.deploy().state_dict()
    assert all(torch.equal(expected[name], value) for name, value in restored.deploy().state_dict().items())
    restored.train()(*batch(restored), 80)["loss"].backward()  # continued, not yet stepped
    restored.deploy()


@averaging
def test_a_step_skipped_for_an_overflow_is_not_training(build: Callable[[], Method]) -> None:
    method = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # type: ignore[attr-defined]
    optimizer = optimizer_of(method)
    before = copy.deepcopy(method.net.state_dict())
    scaler.scale(method(*batch(method), 80)["loss"] * 1e3).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < 2.0**127  # an overflow: nothing was stepped, so the averages do not follow
    assert all(torch.equal(before[name], p) for name, p in method.net.named_parameters())
    method.deploy()


@averaging
def test_gradients_may_be_accumulated(build: Callable[[], Method]) -> None:
    method = build()
    optimizer = optimizer_of(method)
    for step in range(1, 7):
        method(*batch(method), 80)["loss"].backward()
        method.deploy()
        if step % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
            method.after_step()
            method.deploy()
