"""Fused optimisers: chosen on GPUs, the same steps, and never against the user's choice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from coterie.config import fused
from coterie.config.fused import prefer_fused
from tests.helpers.common import small_recipe

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def trained(build: Any, prefer: bool) -> tuple[list[torch.Tensor], Optimizer]:
    """Return the weights after three steps; torch's fused kernels exist for CPUs too, so they run here."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    weights, biases = ([p for p in network.parameters() if p.dim() == dim] for dim in (2, 1))
    optimizer = build([{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 0.02}])
    if prefer:
        optimizer = prefer_fused(optimizer, CUDA)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.arange(10.0).view(2, 5) / 10).square().sum().backward()
        optimizer.step()
    return [p.detach() for p in network.parameters()], optimizer


@pytest.mark.parametrize(
    "build",
    [
        partial(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),
        partial(Adam, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
        partial(AdamW, lr=0.01, weight_decay=0.1),
    ],
)
def test_fused_steps_are_the_same_steps(build: Any) -> None:
    expected, plain = trained(build, prefer=False)
    weights, optimizer = trained(build, prefer=True)
    assert all(group["fused"] for group in optimizer.param_groups) and optimizer.defaults["fused"]
    for group, other in zip(optimizer.param_groups, plain.param_groups, strict=True):
        ours, theirs = ({k: v for k, v in g.items() if k not in ("params", "fused")} for g in (group, other))
        assert ours == theirs
    for a, b in zip(weights, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("choice", [{"fused": False}, {"foreach": True}, {"foreach": False}])
def test_a_choice_of_the_users_stays(choice: dict[str, bool]) -> None:
    optimizer = SGD([nn.Parameter(torch.ones(2))], lr=0.1, **choice)
    assert prefer_fused(optimizer, CUDA) is optimizer


def test_others_and_cpus_are_left_alone() -> None:
    class Own(SGD):
        pass

    parameters = [nn.Parameter(torch.ones(2))]
    for optimizer in (Adagrad(parameters), Own(parameters, lr=0.1), torch.optim.RMSprop(parameters)):
        assert prefer_fused(optimizer, CUDA) is optimizer
    optimizer = SGD(parameters, lr=0.1)
    assert prefer_fused(optimizer, CPU) is optimizer
    recipe = small_recipe(device="cpu")
    assert recipe.build_optimizer(recipe.build()).param_groups[0]["fused"] is None


def test_a_recipe_asks_for_its_parameters_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fused.FUSED, "cpu", (SGD,))
    recipe = small_recipe(device="cpu", decay_norm_and_bias=False)
    groups = recipe.build_optimizer(recipe.build()).param_groups
    assert [group["fused"] for group in groups] == [True, True]
    assert [group["weight_decay"] for group in groups] == [5e-4, 0.0]
