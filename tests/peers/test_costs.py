"""What a step costs: what each method says, against a count of its own of every operation of a real step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from coterie import PeerNet, models
from coterie.bench import subjects
from coterie.cli.choosing import training_costs
from coterie.experiments.job import Job
from coterie.methods import Method, available
from coterie.peers.cost import macs, plain_training_macs, training_macs
from coterie.peers.cuts import Cut

SHAPE, CLASSES, PEERS = (3, 16, 16), 10, 3
STEM, STAGE1 = 256 * 27 * 16, 256 * 2 * 144 * 16  # pixels, weights of an output channel, output channels
STAGE2, STAGE3 = 64 * (144 + 288 + 16) * 32, 16 * (288 + 576 + 32) * 64  # the shortcut is a 1x1 convolution
PLAIN = STEM + STAGE1 + STAGE2 + STAGE3 + 640
SHARE = (STAGE3 + 640) / PLAIN
"""Multiply-adds of resnet8 at 16x16, and the part of them that each branch does for itself."""

make = models.factory("resnet8", CLASSES, 3)


class MacCounter(TorchDispatchMode):
    """Multiply-adds of convolutions and matrix products, by their shapes."""

    macs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        aten = torch.ops.aten
        name = func.overloadpacket
        if name is aten.convolution:
            self.macs += out.numel() * args[1][0].numel()
        elif name is aten.convolution_backward:
            self.macs += sum(args[-1][:2]) * args[0].numel() * args[2][0].numel()
        elif name in (aten.mm, aten.bmm, aten.addmm):
            self.macs += out.numel() * args[-2].shape[-1]
        return out


def counted(method: Method) -> float:
    """A step of the method, forward and backward, per image."""
    views = [torch.randn(4, *SHAPE) for _ in range(method.views)]
    with MacCounter() as counter:
        method(views if len(views) > 1 else views[0], torch.arange(4), 500)["loss"].backward()
    return counter.macs / 4


def build(name: str, **options: Any) -> Method:
    cls: Any = available()[name]
    cut = "stage3" if cls.trains == "branches" else None
    net = PeerNet(make, 1 if cls.trains == "one network" else PEERS, cut, torch.zeros(2, *SHAPE))
    method: Method = cls(net, **options)
    method.prepare()
    return method.train()


STEPS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"teacher": make()} if name == "KD" else {}) for name in available()),
    ("Baseline", {"views": 3}),
    *(("PCL", {"input_augmentation": False, "peer_teacher": teacher}) for teacher in ("mean", "mutual")),
    *(("PCL", {"peer_teacher": teacher}) for teacher in ("mutual", "own_mean", "none")),
    ("PCL", {"mean_view": "taught"}),
    ("PCL", {"mean_view": "taught", "input_augmentation": False}),
    ("PCL", {"mean_view": "taught", "peer_teacher": "own_mean"}),
    ("PCL", {"joint_trunk": True}),
]


@pytest.mark.parametrize("name, options", STEPS)
def test_a_method_says_what_its_step_costs(name: str, options: dict[str, Any]) -> None:
    """Heads aside, which it does not count: FFL's fusion, 6 % of a network as small as this."""
    fusion = 16 * (3 * 64 * 9 + 3 * 64 * 64) + 640 if name == "FFL" else 0
    ratio = (counted(build(name, **options)) - 3 * fusion) / counted(build("Baseline"))
    assert available()[name].step_cost(PEERS, SHARE, options) == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("name, options", STEPS)
def test_training_macs_are_those_of_the_step(name: str, options: dict[str, Any]) -> None:
    """The pairs of a batch in MCL's similarities are fewer in a batch of two."""
    method = build(name, **options)
    measured = training_macs(method, SHAPE, method.views, CLASSES)
    assert measured == pytest.approx(counted(method), rel=1e-3 if name == "MCL" else 0)


def test_macs_of_our_network_by_hand() -> None:
    assert macs(make(), SHAPE) == PLAIN
    assert plain_training_macs(make(), SHAPE) == counted(build("Baseline")) == 3 * PLAIN - STEM


def test_a_teachers_forward_pass_is_part_of_the_step() -> None:
    teacher = models.factory("resnet20", CLASSES, 3)()
    kd, plain = (build(name, **options) for name, options in (("KD", {"teacher": teacher}), ("Baseline", {})))
    extra = training_macs(kd, SHAPE, 1, CLASSES) - training_macs(plain, SHAPE, 1, CLASSES)
    assert extra == macs(teacher, SHAPE) > PLAIN
    said = available()["KD"].step_cost(1, 1.0, teacher_size=extra / PLAIN)
    assert said == pytest.approx(1 + extra / (3 * PLAIN))


def test_what_is_recomputed_is_counted_again() -> None:
    options: dict[str, Any] = {"peers": PEERS, "cut": "stage3", "example": torch.zeros(2, *SHAPE)}
    stored, recomputed = (
        available()["ONE"](PeerNet(make, **options, checkpoint_activations=again)) for again in (False, True)
    )
    extra = training_macs(recomputed, SHAPE, 1, CLASSES) - training_macs(stored, SHAPE, 1, CLASSES)
    assert extra == STEM + STAGE1 + STAGE2


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_a_backward_pass_of_grouped_convolutions_is_two_forwards(groups: int) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=groups), nn.Flatten(), nn.Linear(32, 5))
    first, second, last = 16 * 3 * 8, 4 * 9 * 8 * 8 // groups, 32 * 5
    assert plain_training_macs(network, (3, 4, 4)) == 2 * first + 3 * (second + last)


def test_attention_is_trained_at_three_passes() -> None:
    vit = models.factory("timm:test_vit", CLASSES, 3)()
    patches = 16 * 16 * 16 * 3 * 64  # of 16 positions; nothing needs the gradient of the images
    assert plain_training_macs(vit, (3, 64, 64)) == 3 * macs(vit, (3, 64, 64)) - patches


class Noisy(nn.Module):
    """A network with dropout and batch-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.stem(x).mean((2, 3)))
        return logits


def test_counting_leaves_method_and_random_numbers_as_they_were() -> None:
    net = PeerNet(Noisy, 2, "fc", torch.zeros(2, *SHAPE))
    method = available()["PCL"](net).eval()
    before, rng = copy.deepcopy(method.state_dict()), torch.get_rng_state()
    assert training_macs(method, SHAPE, method.views, CLASSES) > 0
    assert torch.equal(torch.get_rng_state(), rng) and not method.training
    assert all(torch.equal(v, before[k]) for k, v in method.state_dict().items() if isinstance(v, Tensor))
    assert all(p.grad is None for p in method.parameters())
    assert torch.backends.mha.get_fastpath_enabled()


def test_averaged_weights_are_evaluated_where_they_are_kept() -> None:
    """As many times as the method has predictors of that kind."""
    branches = 1 - SHARE + 3 * SHARE
    for name, options in STEPS:
        method, cls = build(name, **options), available()[name]
        assert cls.averages_weights(options) == (method.mean is not None)
        raw = {"one network": 1, "networks": 3, "branches": branches}[cls.trains]
        kinds = 1 + any(predictor.startswith("mean") for predictor in method.predictors())
        assert cls.evaluation_cost(PEERS, SHARE, options) == pytest.approx(raw * kinds)
        assert cls.evaluation_cost(PEERS, SHARE, options, ema=True) == pytest.approx(2 * raw)


def test_bench_cuts_and_jobs_say_what_the_method_says(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = available()
    third = Cut("stage3", 0, 0, shared_macs=2, peer_macs=1, positions=64)
    for row, (name, options) in subjects.SUBJECTS.items():
        expected = methods[name].step_cost(4, 1 / 3, options)
        assert subjects.stated_cost(row, third, 4) == pytest.approx(expected)
        flags = {f"method.{key}": value for key, value in options.items()}
        assert Job({"method": name, "peers": 4, **flags}, 0).step_cost() == pytest.approx(expected)
    for cls in methods.values():
        monkeypatch.setattr(cls, "step_cost", classmethod(lambda cls, *_: 7.0))
    assert set(training_costs(0.5, 3).values()) == {7.0}
    assert {subjects.stated_cost(row, third, 3) for row in subjects.SUBJECTS} == {7.0}
    assert {Job({"method": name}, 0).step_cost() for name in methods} == {7.0}


def test_without_a_cut_each_peer_does_all_the_work() -> None:
    whole = Job({"method": "ONE", "peers": 3, "cut": "none"}, 0)
    assert whole.step_cost() == 3 and whole.share == 1
