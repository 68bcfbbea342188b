"""`coterie bench`: how it times, what it compares with, and what it takes apart."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch

from coterie.bench import floor, memory, parts, reference, subjects, usual
from coterie.bench.processes import in_subprocess
from coterie.bench.size import FULL, QUICK
from coterie.bench.timing import Times, in_turns, quartiles
from coterie.errors import Failure
from coterie.models import factory
from coterie.peers.cuts import Cut
from coterie.peers.net import standalone

TINY = dataclasses.replace(QUICK, batch=8, rounds=1, steps=2, batches=(4, 8), widths=(8, 16))


class Clock:
    """A clock that stands still but for what the runs add."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, *seconds: float) -> Any:
        left = iter(seconds)

        def work() -> None:
            self.now += next(left)

        return work


# Timing


def test_each_turn_is_compared_with_the_mean_of_its_neighbours() -> None:
    clock = Clock()
    reference = clock.run(9, 9, 1, 3, 1, 3, 1)  # a warm-up round, and two that count
    subjects = {"a": clock.run(9, 4, 8), "b": clock.run(9, 4, 8)}
    found = in_turns(reference, subjects, 2, clock)
    assert found["a"].seconds == 6 and found["a"].turns == 2
    assert found["a"].ratio == pytest.approx((4 / 2 + 8 / 2) / 2)
    assert found["b"].ratio == pytest.approx((4 / 2 + 8 / 2) / 2)
    assert found["a"].plain()["quartiles"] == [pytest.approx(2.5), pytest.approx(3.5)]


def test_a_machine_that_slows_down_changes_no_ratio() -> None:
    clock, speed = Clock(), [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]
    reference = clock.run(*(2 * s for s in speed))
    found = in_turns(reference, {"a": clock.run(*(6 * s for s in (1, 1, 1, 3, 5, 5)))}, 5, clock)
    assert found["a"].ratio == pytest.approx(3)


def test_quartiles() -> None:
    assert quartiles([7.0]) == (7.0, 7.0)
    assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 4.0)


# Theory


def test_theory_is_that_of_the_methods_page() -> None:
    """With a branch of a third of the work: the figures of methods.md, "Cost per step"."""
    third = Cut("stage3", 0, 0, shared_macs=2, peer_macs=1, positions=64)
    expected = dict.fromkeys(("ONE", "CL", "OKDDip", "FFL"), 5 / 3) | dict.fromkeys(("DML", "KDCL", "MCL"), 3.0)
    expected |= {"Baseline": 1.0, "KD": 4 / 3, "PCL": 4.0, "PCL w/o InAu": 20 / 9}
    assert {row: subjects.theory(row, third, 3) for row in subjects.ROWS} == pytest.approx(expected)


def test_the_branch_of_resnet32_does_about_a_third_of_the_work() -> None:
    by_hand = 10 * 64 * 64 * 9 * 64 - 32 * 64 * 9 * 64 + 32 * 64 * 64 + 64 * 100  # nine 64-64, one 32-64, 1x1, fc
    cut = subjects.cut_of(FULL)
    assert cut.name == "stage3" and cut.peer_macs == by_hand
    assert subjects.theory("ONE", cut, 3) == pytest.approx(1.65, abs=0.01)


# The floor


def test_the_floor_has_exactly_the_convolutions_of_the_network() -> None:
    network = factory("resnet8", 100, 3)()
    found = floor.convolutions(network, torch.randn(4, 3, 32, 32))
    calls = {(c.input[1:], c.weight, c.stride[0], c.first): count for c, count in found.items()}
    assert calls == {
        ((3, 32, 32), (16, 3, 3, 3), 1, True): 1,
        ((16, 32, 32), (16, 16, 3, 3), 1, False): 2,
        ((16, 32, 32), (32, 16, 3, 3), 2, False): 1,
        ((16, 32, 32), (32, 16, 1, 1), 2, False): 1,
        ((32, 16, 16), (32, 32, 3, 3), 1, False): 1,
        ((32, 16, 16), (64, 32, 3, 3), 2, False): 1,
        ((32, 16, 16), (64, 32, 1, 1), 2, False): 1,
        ((64, 8, 8), (64, 64, 3, 3), 1, False): 1,
    }
    assert sum(found.values()) == sum(isinstance(part, torch.nn.Conv2d) for part in network.modules())


def test_the_floor_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every convolution 1 s forward and 3 s both ways in NCHW, 2 s and 2 s in NHWC: 1 and 2 s at best."""
    monkeypatch.setattr(floor, "timed", lambda c, layout: (1, 3) if layout is torch.contiguous_format else (2, 2))
    found = floor.measure(TINY)
    assert found["Baseline"]["floor_seconds"] == 9 * 2
    assert found["PCL"]["floor_seconds"] == 3 * (9 * 2 + 9 * 1)
    assert found["PCL"]["ratio"] == pytest.approx(found["PCL"]["seconds"] / 81)
    assert found["PCL"]["seconds"] > found["Baseline"]["seconds"] > 0 and len(found["convolutions"]) == 8


def test_a_convolution_that_was_disturbed_raises_no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of three rounds another one takes a hundred seconds instead of one: in every sum, in no median."""
    calls: Counter[Any] = Counter()
    seen: list[Any] = []

    def timed(convolution: Any, layout: Any) -> tuple[float, float]:
        if convolution not in seen:
            seen.append(convolution)
        turn, calls[convolution, layout] = calls[convolution, layout], calls[convolution, layout] + 1
        return (100, 100) if turn and convolution == seen[turn] else (1, 1)

    monkeypatch.setattr(floor, "timed", timed)
    found = floor.measure(dataclasses.replace(TINY, rounds=3))
    assert found["Baseline"]["floor_seconds"] == 9 and found["PCL"]["floor_seconds"] == 3 * (9 + 9)
    assert found["PCL"]["turns"] == 3


# The reference step


def test_the_reference_computes_what_pcl_computes() -> None:
    """Same weights, same views: the same terms over three steps, so also the same updates and averages."""
    ours = subjects.made("PCL", TINY)
    theirs = usual.NaivePCL([standalone(peer) for peer in ours.net.peers])
    with torch.no_grad():
        for net in (theirs.net, theirs.teacher):
            net.classifier.load_state_dict(ours.classifier.state_dict())
    share_trunk = [standalone(peer) for peer in ours.net.peers]
    assert torch.equal(share_trunk[0].stem[0].weight, share_trunk[2].stem[0].weight)
    optimizer = subjects.recipe().build_optimizer(ours)
    for step in range(3):
        views, labels = subjects.inputs(3, 8, TINY)
        expected = copy.deepcopy(ours)(views, labels, 40)
        found = copy.deepcopy(theirs).terms(views, labels, 40)
        for term, value in zip(found, list(expected.values())[1:], strict=True):
            assert term.item() == pytest.approx(value.item(), rel=1e-5, abs=1e-5), step
        assert expected["distil_mean"].item() > 0 or step == 0
        ours(views, labels, 40)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        ours.after_step()
        theirs.step(views, labels, 40)
    assert len(theirs.logged) == 3


def test_both_train_on_as_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        usual.NaivePCL, "step", lambda self, views, labels, epoch: seen.append(len(views) * len(labels))
    )
    usual.turns(TINY)()
    assert seen == [3 * 8] * TINY.steps
    method = subjects.made("PCL", TINY)
    forward = method.forward
    monkeypatch.setattr(reference, "made", lambda row, size: method)
    monkeypatch.setattr(method, "forward", lambda v, y, e: seen.append(len(v) * len(y)) or forward(v, y, e))
    reference.turns(TINY)()
    assert seen == [3 * 8] * 2 * TINY.steps


# Memory and parts


def _held(megabytes: int) -> Any:
    return lambda: torch.ones(megabytes << 18)


class Holds:
    """A builder of a run that holds so much for a moment."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes

    def __call__(self) -> Any:
        return _held(self.megabytes)


def test_peak_memory_is_the_subjects_alone() -> None:
    large, small = (memory.peak(Holds(megabytes)) for megabytes in (200, 50))
    assert 200 << 20 <= large < 215 << 20
    assert 50 << 20 <= small < 65 << 20


def _dies() -> Any:
    raise SystemExit(3)


def test_a_process_that_dies_is_reported() -> None:
    with pytest.raises(Failure, match="exit code 3"), in_subprocess(_dies) as call:
        call()


def test_the_loss_terms_alone_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the peers' own answers the terms are the whole method's."""
    method = subjects.made("PCL", TINY)
    views, labels = subjects.inputs(3, 8, TINY)
    monkeypatch.setattr(parts, "inputs", lambda *_: (views, labels))
    whole = copy.deepcopy(method)(views, labels, subjects.EPOCH)["loss"].item()
    said: list[float] = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(torch.Tensor, "backward", lambda self: said.append(self.item()) or backward(self))
    parts._terms(method, TINY)()
    assert said == [pytest.approx(whole, rel=1e-5)]


def test_the_parts_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Times] = {}
    monkeypatch.setattr(parts, "in_turns", lambda *given: taken.update(in_turns(*given)) or taken)
    found = parts._step(TINY)
    shares = {name: part["share"] for name, part in found["parts"].items()}
    expected = {name: times.ratio for name, times in taken.items()}
    for once_an_epoch in ("record", "checkpoint"):
        expected[once_an_epoch] /= 391  # steps of CIFAR
    assert shares == pytest.approx(expected) and all(share > 0 for share in shares.values())
    assert found["other"] == pytest.approx(sum(shares[name] for name in parts.OTHER))
    assert found["parts"]["data"]["turns"] == TINY.rounds
