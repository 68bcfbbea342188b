"""`coterie bench`: how it times, and what it compares with."""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import Any

import pytest
import torch

from coterie.bench import naive_pcl, reference, subjects
from coterie.bench.subjects import FULL, QUICK
from coterie.bench.timing import in_subprocess, peak_memory, summarize_turns, time_in_turns
from coterie.errors import Failure
from coterie.peers.cuts import Cut
from coterie.peers.net import standalone

TINY = dataclasses.replace(QUICK, batch=8, rounds=1, steps=2)


class Clock:
    """A clock that stands still but for the seconds that runs add."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", self)

    def __call__(self) -> float:
        return self.now

    def run(self, *seconds: float) -> Any:
        left = iter(seconds)

        def work() -> None:
            self.now += next(left)

        return work


# Timing


def test_each_turn_is_compared_with_the_mean_of_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reference = clock.run(9, 9, 1, 3, 1, 3, 1)  # a warm-up round, and two that count
    times = time_in_turns(reference, {"a": clock.run(9, 4, 8), "b": clock.run(9, 4, 8)}, 2)
    assert times["a"]["seconds"] == 6 and times["a"]["turns"] == 2
    assert times["a"]["ratio"] == pytest.approx((4 / 2 + 8 / 2) / 2)
    assert times["b"]["ratio"] == pytest.approx((4 / 2 + 8 / 2) / 2)
    assert times["a"]["quartiles"] == [pytest.approx(2.5), pytest.approx(3.5)]


def test_a_machine_that_slows_down_changes_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, speed = Clock(monkeypatch), [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 5.0]
    reference = clock.run(*(2 * s for s in speed))
    times = time_in_turns(reference, {"a": clock.run(*(6 * s for s in (1, 1, 1, 3, 5, 5)))}, 5)
    assert times["a"]["ratio"] == pytest.approx(3)


def test_quartiles() -> None:
    assert summarize_turns([1.0], [7.0])["quartiles"] == [7.0, 7.0]
    assert summarize_turns([1.0], [5.0, 1.0, 2.0, 4.0, 3.0])["quartiles"] == [2.0, 4.0]


# Theory


def test_theory_is_that_of_the_methods_page() -> None:
    """With a branch of a third of the work: the figures of methods.md, "Cost per step"."""
    third = Cut("stage3", 0, 0, shared_macs=2, peer_macs=1, positions=64)
    expected = dict.fromkeys(("ONE", "CL", "OKDDip", "FFL"), 5 / 3) | dict.fromkeys(("DML", "KDCL", "MCL"), 3.0)
    expected |= {"Baseline": 1.0, "KD": 4 / 3, "OwnMean": 4 / 3, "PCL": 4.0, "PCL w/o InAu": 20 / 9}
    assert {row: subjects.stated_cost(row, third, 3) for row in subjects.SUBJECTS} == pytest.approx(expected)


def test_the_branch_of_resnet32_does_about_a_third_of_the_work() -> None:
    by_hand = 10 * 64 * 64 * 9 * 64 - 32 * 64 * 9 * 64 + 32 * 64 * 64 + 64 * 100  # nine 64-64, one 32-64, 1x1, fc
    cut = subjects.default_cut_of(FULL)
    assert cut.name == "stage3" and cut.peer_macs == by_hand
    assert subjects.stated_cost("ONE", cut, 3) == pytest.approx(1.65, abs=0.01)


# The reference step


def test_the_reference_computes_what_pcl_computes() -> None:
    """Same weights, same views: the same terms over three steps, so also the same updates and averages."""
    ours = subjects.build_method("PCL", TINY)
    theirs = naive_pcl.NaivePCL([standalone(peer) for peer in ours.net.peers])
    with torch.no_grad():
        for net in (theirs.net, theirs.teacher):
            net.classifier.load_state_dict(ours.classifier.state_dict())
    share_trunk = [standalone(peer) for peer in ours.net.peers]
    assert torch.equal(share_trunk[0].stem[0].weight, share_trunk[2].stem[0].weight)
    optimizer = subjects.build_step(ours).optimizer
    for step in range(3):
        views, labels = subjects.random_batch(3, TINY)
        expected = copy.deepcopy(ours)(views, labels, 40)
        terms = copy.deepcopy(theirs).terms(views, labels, 40)
        for term, value in zip(terms, list(expected.values())[1:], strict=True):
            assert term.item() == pytest.approx(value.item(), rel=1e-5, abs=1e-5), step
        assert expected["distil_mean"].item() > 0 or step == 0
        ours(views, labels, 40)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        ours.after_step()
        theirs.step(views, labels, 40)
    assert len(theirs.losses) == 3


def test_both_train_on_as_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        naive_pcl.NaivePCL, "step", lambda self, views, labels, epoch: seen.append(len(views) * len(labels))
    )
    naive_pcl.build_naive_epoch(TINY, train=True)()
    assert seen == [3 * 8] * TINY.steps
    method = subjects.build_method("PCL", TINY)
    forward = method.forward
    monkeypatch.setattr(reference, "build_method", lambda row, size: method)
    monkeypatch.setattr(method, "forward", lambda v, y, e: seen.append(len(v) * len(y)) or forward(v, y, e))
    reference.build_epoch(TINY, train=True)()
    assert seen == [3 * 8] * 2 * TINY.steps


# Processes


class Holds:
    """A builder of a call that holds so much for a moment."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes

    def __call__(self) -> Any:
        return lambda: torch.ones(self.megabytes << 18)


def test_peak_memory_is_the_subjects_alone() -> None:
    large, small = (peak_memory(Holds(megabytes)) for megabytes in (200, 50))
    assert 200 << 20 <= large < 215 << 20
    assert 50 << 20 <= small < 65 << 20


def _dies() -> Any:
    raise SystemExit(3)


def test_a_process_that_dies_is_reported() -> None:
    with pytest.raises(Failure, match="A process that measures died"), in_subprocess(_dies) as call:
        call()
