"""MeanPeers: Eq. 7-8 on every tensor, batch-norm as the specification says, sharing kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import coterie
from coterie.peers.ema import MeanPeers
from tests.helpers.common import TinyNet


def make(beta: float = 0.9) -> coterie.PCL:
    return coterie.PCL(coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 8, 8)), beta=beta)


def disturb(method: coterie.PCL) -> None:
    with torch.no_grad():
        for p in method.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p))


def test_every_tensor_follows_the_formula() -> None:
    method = make(beta=0.6)
    names = {n for n, _ in method.mean.average.named_parameters()}
    assert {"classifier.weight", "net.peers.0.stem.weight", "net.peers.2.head.bias"} <= names
    expected: dict[str, Tensor] = {}
    for g in range(1, 6):
        disturb(method)
        method.after_step()
        weight = min(1 - 1 / g, 0.6)
        for name in names:
            current = method.get_parameter(name).detach().double()
            expected[name] = current if g == 1 else weight * expected[name] + (1 - weight) * current
    for name, mean in method.mean.average.named_parameters():
        assert torch.allclose(mean.double(), expected[name], atol=1e-5), name


def test_the_first_update_copies_the_student_exactly_and_counts_from_one() -> None:
    method = make()
    disturb(method)
    method.after_step()
    assert method.mean.step == 1
    for name, mean in method.mean.average.named_parameters():
        assert torch.equal(mean, method.get_parameter(name))


def test_sharing_is_kept_inside_the_average() -> None:
    method = make()
    peers = method.mean.average.net.peers
    assert peers[0].stem is peers[1].stem is peers[2].stem
    assert peers[0].stem is not method.net.peers[0].stem
    assert peers[0].stage3 is not peers[1].stage3
    trainable = sum(p.numel() for p in method.parameters() if p.requires_grad)
    assert sum(p.numel() for p in method.mean.parameters()) == trainable


def test_own_batch_norm_works_in_training_mode_with_statistics_of_its_own(example: Tensor) -> None:
    method = make().train()
    bn = method.mean.average.net.peers[0].stage1[1]
    assert bn.training and not method.mean.average.net.peers[0].stage1[0].training
    before = bn.running_mean.clone()
    method([example, 3 * example + 1, example - 2], torch.randint(5, (4,)), 0)
    assert not torch.equal(bn.running_mean, before)
    student_bn = method.net.peers[0].stage1[1]
    disturb(method)
    moved = bn.running_mean.clone()
    method.after_step()
    assert torch.equal(bn.running_mean, moved)  # the update leaves it alone
    assert int(bn.num_batches_tracked) == int(student_bn.num_batches_tracked) == 3  # one pass per view


def test_averaged_batch_norm_stays_in_evaluation_mode(example: Tensor) -> None:
    net = coterie.PeerNet(TinyNet, 2, "stage3", torch.randn(2, 3, 8, 8))
    method = coterie.PCL(net, beta=0.5, mean_batch_norm="average").train()
    bn, student = method.mean.average.net.peers[0].stage1[1], net.peers[0].stage1[1]
    assert not bn.training
    y = torch.randint(5, (4,))
    expected = None
    for g in range(1, 4):
        method([example + g, 2 * example], y, 0)
        method.after_step()
        weight = min(1 - 1 / g, 0.5)
        now = student.running_var.clone()
        expected = now if expected is None else weight * expected + (1 - weight) * now
    assert torch.allclose(bn.running_var, expected)
    assert torch.equal(bn.num_batches_tracked, student.num_batches_tracked)


def test_the_average_is_frozen_and_dropout_is_off_in_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
    mean = MeanPeers(model, batch_norm="own").train()
    assert [m.training for m in mean.average] == [False, False, True]
    assert not any(p.requires_grad for p in mean.parameters())
    mean.eval()
    assert not any(m.training for m in mean.modules())


@pytest.mark.parametrize("steps", [0, 3])
def test_state_round_trip(steps: int) -> None:
    method = make()
    for _ in range(steps):
        disturb(method)
        method.after_step()
    other = make()
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    assert other.mean.step == steps
    assert all(
        torch.equal(a, b)
        for a, b in zip(method.state_dict().values(), other.state_dict().values(), strict=True)
        if isinstance(a, Tensor)
    )
