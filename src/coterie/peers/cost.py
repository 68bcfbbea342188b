"""What a network costs: parameters, multiply-adds, time."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from .trace import evaluating


def parameters(module: nn.Module) -> int:
    """Count the parameters, shared ones once."""
    return sum(p.numel() for p in module.parameters())


def macs(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Count the multiply-adds of one image of this shape; what runs once is counted once.

    Counted are convolutions and matrix products, those of attention among them; bias, activations and
    normalisation are not.
    """
    image = next(module.parameters()).new_zeros(1, *shape)
    with evaluating(module), counting() as counter:
        module(image)
    return counter.get_total_flops() // 2


def macs_by_layer(module: nn.Module, image: Tensor) -> dict[str, int]:
    """Count the multiply-adds per image of each module's own operations, without its submodules', by its name.

    The counter's own names do not serve: of a module with two names it takes the last, `named_modules` the first.
    So hooks tell which module is running, and the counter what it computes.
    """
    flops: dict[str, int] = {}
    running = [""]
    with evaluating(module), counting() as counter, ExitStack() as hooks:

        def assign() -> None:
            """Give what was counted since the last call to the innermost module."""
            new = counter.get_total_flops() - sum(flops.values())
            if new:
                flops[running[-1]] = flops.get(running[-1], 0) + new

        def enter(name: str, *_: Any) -> None:
            assign()
            running.append(name)

        def leave(*_: Any) -> None:
            assign()
            running.pop()

        for name, part in module.named_modules():
            hooks.enter_context(part.register_forward_pre_hook(partial(enter, name)))
            hooks.enter_context(part.register_forward_hook(leave))
        module(image.clone())
    return {name: count // (2 * len(image)) for name, count in flops.items()}


def training_macs(method: nn.Module, shape: tuple[int, ...], views: int, classes: int) -> float:
    """Count the multiply-adds of one training step for each image of its batch.

    A real step is counted, forward and backward, without the optimiser: the passes of mean teachers and of a
    trained teacher are in it, and what is recomputed in the backward pass. A layer that is trained comes to three
    forward passes, the first layer to two: nothing needs the gradient of the images. The step is taken by a copy
    on two images; batch-norm statistics, gradients and the RNG state of the method stay as they are. `prepare` it
    first: what it does only once is no part of a step.
    """

    def loss(trial: nn.Module, inputs: list[Tensor]) -> Tensor:
        labels = torch.arange(len(inputs[0]), device=inputs[0].device) % classes
        # At the end of any ramp-up: every term has its weight.
        terms: dict[str, Tensor] = trial(inputs, labels, 10**6)
        return terms["loss"]

    return _step_macs(method, shape, views, loss)


def plain_training_macs(network: nn.Module, shape: tuple[int, ...]) -> float:
    """Count the multiply-adds of a training step of a network alone for each image, as `training_macs` does."""
    return _step_macs(network, shape, 1, lambda trial, inputs: trial(inputs[0]).sum())


def _step_macs(
    module: nn.Module, shape: tuple[int, ...], views: int, loss: Callable[[nn.Module, list[Tensor]], Tensor]
) -> float:
    """Count the loss of a copy of the module on views of two images, and its backward pass, for each image."""
    trial = copy.deepcopy(module).train()
    for part in trial.modules():
        if isinstance(part, _BatchNorm):
            part.eval()  # costs the same, and a synchronised one does not wait for other processes
    weight = next(trial.parameters())
    devices = [weight.device] if weight.is_cuda else []
    with torch.random.fork_rng(devices), torch.enable_grad(), counting() as counter:
        inputs = [weight.new_empty(2, *shape).normal_() for _ in range(views)]
        loss(trial, inputs).backward()
    return counter.get_total_flops() / 4  # two images, and two operations for each multiply-add


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """Count the floating-point operations of convolutions and matrix products; a multiply-add is two.

    Attention runs as plain matrix products meanwhile: torch does not count its fused kernels on every device.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    formulas = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
    try:
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=formulas) as counter:
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _convolution_backward_flops(
    gradient: Sequence[int], x: Sequence[int], weight: Sequence[int], *options: Any, **_: Any
) -> int:
    """Count each gradient, of input and of weight, as a forward pass; torch's formula forgets the groups."""
    transposed, output_mask = options[4], options[7]
    return sum(output_mask[:2]) * conv_flop_count(list(x), list(weight), list(gradient), transposed)


def interleaved(runs: dict[str, Callable[[], object]], seconds: float = 1.0) -> dict[str, float]:
    """Return the median seconds of a call of each, called in turns: a slower machine slows all alike.

    Takes about `seconds` per entry, after a warm-up.
    """
    for run in runs.values():
        for _ in range(3):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    started = time.perf_counter()
    order = list(runs.items())
    while time.perf_counter() - started < seconds * len(runs) or len(next(iter(times.values()))) < 5:
        for name, run in order:
            before = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - before)
        order.reverse()  # nobody always follows the same one
    return {name: statistics.median(seconds) for name, seconds in times.items()}
