"""MeanPeers as an average of any module's weights: what docs/loops.md says of it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import coterie


class Tied(nn.Module):
    """Batch-norm, dropout, a mask, a counter, a module used twice and a tied parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6, bias=False)
        self.norm = nn.BatchNorm1d(6)
        self.twice = nn.Linear(6, 6)
        self.again = self.twice
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            self.mask = (torch.rand(6) > 0.2).float()  # another object in every step
        hidden = self.drop(self.again(self.twice(self.norm(self.embed(x)))) * self.mask)
        return hidden @ self.head.weight


def train(model: nn.Module, mean: coterie.MeanPeers, steps: range) -> list[dict[str, Tensor]]:
    """Train and average; return the weights after each step. Each step draws by its number."""
    history = []
    for step in steps:
        torch.manual_seed(step)
        x = torch.randn(8, 4)
        model.zero_grad()
        (model(x) - x).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        mean.update(model)
        history.append({name: value.clone() for name, value in model.state_dict().items()})
    return history


def test_the_first_steps_are_a_plain_mean_and_later_ones_forget() -> None:
    model = Tied()
    start = copy.deepcopy(model.state_dict())
    mean = coterie.MeanPeers(model, beta=0.999, batch_norm="average")
    history = train(model, mean, range(10))
    averaged = mean.average.state_dict()
    expected = torch.stack([state["embed.weight"] for state in history]).mean(0)
    torch.testing.assert_close(averaged["embed.weight"], expected)
    assert not torch.allclose(averaged["embed.weight"], start["embed.weight"])

    fast = coterie.MeanPeers(model, beta=0.5, batch_norm="average")
    history = train(model, fast, range(10, 16))
    expected = history[0]["twice.bias"]
    for state in history[1:]:
        expected = 0.5 * expected + 0.5 * state["twice.bias"]
    torch.testing.assert_close(fast.average.state_dict()["twice.bias"], expected)


def test_statistics_of_batch_norm_are_averaged_and_other_buffers_copied() -> None:
    model = Tied()
    mean = coterie.MeanPeers(model, batch_norm="average")
    history = train(model, mean, range(5))
    averaged = mean.average.state_dict()
    for name in ("norm.running_mean", "norm.running_var"):
        torch.testing.assert_close(averaged[name], torch.stack([state[name] for state in history]).mean(0))
    for name in ("mask", "calls", "norm.num_batches_tracked"):
        assert torch.equal(averaged[name], history[-1][name])
    assert averaged["calls"] == 5


def test_ties_stay_ties() -> None:
    model = Tied()
    mean = coterie.MeanPeers(model, batch_norm="average")
    train(model, mean, range(3))
    average = mean.average
    assert isinstance(average, Tied)
    assert average.head.weight is average.embed.weight and average.again is average.twice
    assert len(list(average.parameters())) == len(list(model.parameters()))
    assert average.embed.weight.data_ptr() != model.embed.weight.data_ptr()


def test_a_resumed_average_is_the_uninterrupted_one() -> None:
    whole = Tied()
    mean = coterie.MeanPeers(whole, beta=0.9, batch_norm="average")
    train(whole, mean, range(4))
    model_state, mean_state = copy.deepcopy(whole.state_dict()), copy.deepcopy(mean.state_dict())
    train(whole, mean, range(4, 30))

    resumed = Tied()
    again = coterie.MeanPeers(resumed, beta=0.9, batch_norm="average")
    resumed.load_state_dict(model_state)
    again.load_state_dict(mean_state)
    assert again.step == 4
    train(resumed, again, range(4, 30))
    assert again.step == mean.step
    for name, value in mean.average.state_dict().items():
        assert torch.equal(again.average.state_dict()[name], value), name


def test_the_average_never_trains() -> None:
    model = Tied()
    mean = coterie.MeanPeers(model, batch_norm="average")
    train(model, mean, range(2))
    mean.train()
    assert not any(module.training for module in mean.average.modules())
    assert not any(parameter.requires_grad for parameter in mean.parameters())
    x = torch.randn(3, 4)
    assert torch.equal(mean.average(x), mean.average(x))
    plain = Tied()
    plain.load_state_dict(mean.average.state_dict())
    assert torch.equal(plain.eval()(x), mean.average(x))
