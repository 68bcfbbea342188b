"""No step waits for its device: nothing in it reads a value or makes a tensor on the host."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from coterie import CutMix, MixUp
from coterie.bench.noise import Noise
from coterie.config.options import from_options
from coterie.data.mix import Mix
from coterie.data.sampler import EpochSampler
from coterie.methods import Method, available
from coterie.methods.cross_entropy import CrossEntropy
from coterie.models import factory
from coterie.peers.net import PeerNet
from coterie.training.meters import LossMeter
from coterie.training.precision import Precision
from coterie.training.step import Step

CPU, META = torch.device("cpu"), torch.device("meta")
BATCH, CLASSES = 8, 100

MIXED = "CutMix, class weights, clipped"
WEIGHTS = torch.linspace(0.5, 1.5, CLASSES)

RECIPES: dict[str, tuple[Mix | None, CrossEntropy, float | None]] = {
    "plain": (None, CrossEntropy(), None),
    MIXED: (CutMix(probability=1.0), CrossEntropy(0.0, WEIGHTS), 1.0),
    "MixUp": (MixUp(probability=1.0), CrossEntropy(), None),
    "class weights, smoothed": (None, CrossEntropy(0.1, WEIGHTS), None),
}
"""How the images are mixed, the loss, and where gradients are clipped."""


class OnlyOn(TorchDispatchMode):
    """Fails at the first operation that gives a tensor of another device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.count = device, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.count += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type != self.device.type:
                raise AssertionError(f"{func} gives a tensor on {tensor.device}")
        return result


def build_method(name: str) -> Method:
    cls: Callable[..., Method] = available()[name]
    make = factory("resnet8", CLASSES, 3)
    trains = available()[name].trains
    net = PeerNet(
        make,
        1 if trains == "one network" else 3,
        "stage3" if trains == "branches" else None,
        torch.zeros(2, 3, 8, 8),
    )
    method = cls(net, **({"teacher": make()} if name == "KD" else {}))
    method.prepare()
    return method


def train_steps(name: str, recipe: str, device: torch.device, watched: Callable[[str], Any]) -> LossMeter:
    """Take three steps as the training loop takes them, the last two of them watched: the first one may read."""
    mix, cross_entropy, clip_norm = RECIPES[recipe]
    method = build_method(name)
    method.cross_entropy = copy.deepcopy(cross_entropy)
    if method.mean is None:
        method.keep_mean(0.9)
    method.to(device).train()
    data, sampler = Noise(4 * BATCH), EpochSampler(4 * BATCH, BATCH)
    data.load()
    optimizer = from_options({}).build_optimizer(method)
    # Autocast knows no `meta`, and is off.
    precision = Precision(CPU if device == META else device, "32", clip_norm)
    step, meter = Step(method, optimizer, precision), LossMeter(device)
    batches = sampler.steps(0)[:3]
    stream = data.stream([b.images for b in batches], method.views, 0, 0, device)
    for number, batch in enumerate(batches):
        labels = torch.from_numpy(data.labels["train"][batch.images])
        with watched("input") if number else nullcontext():
            views, targets = next(stream)
            if mix is not None:
                views, targets = mix(views, targets, CLASSES, 0.0, (0, number, 0))
        with method.cross_entropy.part_of_batch(labels), watched("step") if number else nullcontext():
            terms = step.backward(views, targets, 40)
            meter.add(terms, batch.pieces[0], number, 0.1)
            step.update()
    assert meter.images == 3 * BATCH
    return meter


every = [
    (name, recipe)
    for name, method in available().items()
    for recipe, (mix, _, _) in RECIPES.items()
    if (mix is None or method.soft_targets) and (recipe in ("plain", MIXED) or name in ("PCL", "MCL"))
]


@pytest.mark.parametrize(("name", "recipe"), every)
def test_steps_run_wholly_on_the_meta_device(name: str, recipe: str) -> None:
    """Views, mixing, forward, backward, clipping, optimiser, averages and meter; `meta` has no values to read.

    Images and the draws of mixing come from the host; after that, no tensor does.
    """
    watch = OnlyOn(META)
    meter = train_steps(name, recipe, META, lambda part: watch if part == "step" else nullcontext())
    assert meter.sums.is_meta and watch.count > 200


def test_what_reads_a_value_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(2, device=META).sum().item()
    with OnlyOn(META), pytest.raises(AssertionError, match="cpu"):
        torch.ones(2, device=META) * torch.tensor(2.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("name", "recipe"), every)
def test_steps_do_not_synchronise_with_a_gpu(name: str, recipe: str) -> None:
    @contextmanager
    def no_synchronisation(part: str) -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    train_steps(name, recipe, torch.device("cuda"), no_synchronisation)
