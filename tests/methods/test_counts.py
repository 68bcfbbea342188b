"""What a step costs in counts, which no busy machine can change: convolutions, operators, waits for the device."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import coterie
from coterie.bench.noise import Noise
from coterie.data import in_memory
from coterie.data.batch import normalise
from coterie.data.sampler import Piece
from coterie.methods import Method, available
from coterie.metrics.evaluate import evaluate
from coterie.models import factory
from coterie.peers.net import PeerNet
from coterie.training.meters import LossMeter

M = 3
ALL, BRANCH = 9, 3
"""Convolutions of resnet8, and of its last stage: two, and one in the shortcut."""


class Count(TorchDispatchMode):
    """Counts the operators that reach the device, in the forward and in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.of.values())


def build_method(name: str, **options: Any) -> Method:
    cls = available()[name]
    make = factory("resnet8", 10, 3)
    cut = "stage3" if cls.trains == "branches" else None
    net = PeerNet(make, 1 if cls.trains == "one network" else M, cut, torch.zeros(2, 3, 8, 8))
    options |= {"teacher": make()} if name == "KD" else {}
    method = getattr(coterie, name)(net, **options)
    assert isinstance(method, Method)
    method.prepare()
    return method.train()


def step(method: Method) -> Count:
    """Forward, backward and averages of a step that is not the first."""
    views, labels = list(torch.randn(method.views, 4, 3, 8, 8)), torch.randint(10, (4,))
    for _ in range(2):
        method.zero_grad()
        with Count() as count:
            method(views if method.views > 1 else views[0], labels, 1)["loss"].backward()
            method.after_step()
    return count


# (forward, backward) convolutions: FFL fuses with two of its own, teachers that are not peers only go forward.
CONVOLUTIONS = {
    "Baseline": (ALL, ALL),
    "KD": (2 * ALL, ALL),
    "CL": (ALL + 2 * BRANCH, ALL + 2 * BRANCH),
    "ONE": (ALL + 2 * BRANCH, ALL + 2 * BRANCH),
    "FFL": (ALL + 2 * BRANCH + 2, ALL + 2 * BRANCH + 2),
    "OKDDip": (ALL + 2 * BRANCH, ALL + 2 * BRANCH),
    "MCL": (M * ALL, M * ALL),
    "DML": (M * ALL, M * ALL),
    "KDCL": (M * ALL, M * ALL),
    "OwnMean": (2 * ALL, ALL),
    "PCL": (2 * M * ALL, M * ALL),
}

# All operators of forward, backward and averages, with torch 2.13; raise one knowingly.
OPERATORS = {
    "Baseline": 158,
    "KD": 222,
    "CL": 350,
    "ONE": 360,
    "FFL": 393,
    "OKDDip": 419,
    "DML": 461,
    "KDCL": 456,
    "MCL": 710,
    "OwnMean": 237,
    "PCL": 676,
}


# .item(), float() and bool(); an index by a mask; numbers of Python's made a tensor: all wait for a GPU.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh")


@pytest.mark.parametrize("name", list(available()))
def test_a_step_runs_no_layer_twice_and_never_waits_for_the_device(name: str) -> None:
    count = step(build_method(name))
    assert (count.of["convolution"], count.of["convolution_backward"]) == CONVOLUTIONS[name]
    assert [name for name in WAITS if count.of[name]] == [], "these wait for the device"
    assert count.of["_foreach_lerp_"] == (name in ("PCL", "OwnMean")), "all averages move in one operation"
    assert count.total <= 1.1 * OPERATORS[name]  # other versions of torch count a little differently


def test_losses_take_one_softmax_for_all_students_whatever_their_number() -> None:
    """CE of the peers and of the ensemble, and two terms with a teacher and all students each: 6 for any m."""
    make = factory("resnet8", 10, 3)
    for m in (2, 3, 5):
        method = coterie.PCL(PeerNet(make, m, "stage3", torch.zeros(2, 3, 8, 8))).train()
        assert step(method).of["_log_softmax"] == 6


def test_records_wait_for_a_gpu_once_in_fifty_steps() -> None:
    meter = LossMeter(torch.device("cpu"))
    assert LossMeter(torch.device("meta")).check_every == 50  # any device but the processor
    meter.check_every = 50
    piece = Piece(np.arange(4), 4, 1.0)
    with Count() as count:
        for number in range(100):
            meter.add({"loss": torch.tensor(1.0), "ce": torch.tensor(1.0)}, piece, number, 0.1)
    assert count.of["_local_scalar_dense"] == 2


def test_views_reach_a_gpu_through_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it shows without one: a copy from other memory would wait for the steps before it."""
    data = Noise(8)
    data.load()
    pinned: list[int] = []
    sent: list[tuple[int, str, bool]] = []

    def to(self: torch.Tensor, device: object, non_blocking: bool = False) -> torch.Tensor:
        sent.append((self.data_ptr(), str(device), non_blocking))
        return self

    monkeypatch.setattr(in_memory, "LARGEST_ON_DEVICE", 0)  # sent batch by batch
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.data_ptr()) or self)
    monkeypatch.setattr(torch.Tensor, "to", to)
    next(data.stream([np.arange(4)], 2, 0, 0, "cuda"))
    assert len(pinned) == 3 and sent == [
        (place, "cuda", True) for place in pinned
    ]  # the images, where to cut all their views, and labels
    next(data.stream([np.arange(4)], 2, 0, 0, "cpu"))
    assert len(pinned) == 3 and [device for _, device, _ in sent[3:]] == ["cpu"] * 3


def test_normalising_a_batch_sends_no_numbers_to_the_device() -> None:
    pixels = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    first = normalise(pixels, mean, std)
    with Count() as count:
        second = normalise(pixels, mean, std)
    assert count.of["lift_fresh"] == 0
    by_hand = (pixels / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    assert torch.equal(first, second) and torch.allclose(first, by_hand, atol=1e-5)


def test_an_evaluation_is_one_forward_of_each_network_and_waits_only_at_its_end() -> None:
    waits = []
    for batches in (2, 6):
        images = [(torch.randn(4, 3, 8, 8), torch.randint(10, (4,))) for _ in range(batches)]
        alone, peers = build_method("Baseline"), build_method("PCL")
        with Count() as count:
            evaluate(alone, images)
        assert count.of["convolution"] == ALL * batches and count.of["convolution_backward"] == 0
        waits.append(count.of["_local_scalar_dense"])
        with Count() as count:
            evaluate(peers, images)
        assert count.of["convolution"] == 2 * (ALL + 2 * BRANCH) * batches  # raw and mean peers, each trunk once
    assert waits[0] == waits[1]


def test_networks_change_their_activations_in_place() -> None:
    for name in ("resnet8", "resnet110", "vgg16", "densenet40_12"):
        network = factory(name, 10, 3)()
        assert all(part.inplace for part in network.modules() if isinstance(part, nn.ReLU))


FAULTS = """
import resource, sys, torch
from coterie.training.memory import keep_freed_memory
torch.set_num_threads(1)
assert sys.argv[1] == "default" or keep_freed_memory()
def step():
    kept = [torch.ones(10 << 20) for _ in range(3)]  # 40 MB each, as activations: all at once, then all freed
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
counts = []
for _ in range(3):  # the system may do something of its own in one of them
    before = faults()
    step()
    counts.append(faults() - before)
print(min(counts))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    def faults(keep: bool) -> int:
        command = [sys.executable, "-c", FAULTS, "kept" if keep else "default"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    # Of pages of 4 kB there are 30,000; where a system's are so large that it makes no difference, few in both.
    assert 20 * faults(keep=True) < max(faults(keep=False), 1000)
