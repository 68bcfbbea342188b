"""Checks of steps on a device: against float64 on the CPU, by precision, compiled, saved."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from ..config.options import from_options
from ..config.recipe import PrecisionName
from ..config.schedule import Rates
from ..methods import Method
from ..runs.checkpoints import Checkpoints
from ..training.distributed import World
from ..training.meters import LossMeter
from ..training.state import TrainingState
from ..training.step import Step
from .checks import Outcome, Skipped, compare
from .doctor_machine import find_compiler
from .smooth_network import SmoothNet
from .subjects import EPOCH, BenchSize, build_method, build_step

CPU = torch.device("cpu")
SIZE = BenchSize("resnet8", batch=16, rounds=3, steps=1, classes=10, shape=(3, 16, 16))
WRONG = "these numbers are wrong on this device: update torch and the driver, and report it."

FLOAT32 = {"terms": 1e-5, "gradients": 2e-4, "weights": 2e-4}
"""Largest relative differences to float64. A CPU had at most 2e-7, 8e-6 and 3e-6; GPUs sum in other orders."""
BY_PRECISION: dict[PrecisionName, dict[str, float]] = {
    "32": {"terms": 1e-3, "weights": 2e-2},  # a GPU may compute convolutions in TF32, with 10 bits
    "bf16": {"terms": 5e-3, "weights": 1e-1},  # 7 bits; a CPU had 3e-5 and 8e-3
    "fp16": {"terms": 1e-3, "weights": 2e-2},  # 10 bits; a CPU had 7e-6 and 1e-3
}
SAVED = {"weights": 0.0, "logits": 1e-3}  # as TF32 may have computed the device's logits


def check_method(name: str, device: torch.device) -> Outcome:
    """Take two steps in float32, and in float64 on the CPU: terms, gradients, then weights and averages."""
    method, reference = _method_and_reference(name, device)
    start = _flat(reference.parameters())
    step, reference_step = build_step(method), build_step(reference)
    views, labels = fixed_batch(method)
    with _without_tf32():
        terms = step.backward([view.to(device) for view in views], labels.to(device), EPOCH)
        expected = reference_step.backward([view.double() for view in views], labels, EPOCH)
        measured = {"terms": _of_terms(terms, expected), "gradients": _of_gradients(method, reference)}
        for either in (step, reference_step):
            either.update()
        step([view.to(device) for view in views], labels.to(device), EPOCH)
    reference_step([view.double() for view in views], labels, EPOCH)
    measured["weights"] = _of_change(method, reference, start)
    return compare(measured, FLOAT32, WRONG)


def check_precision(format: PrecisionName, device: torch.device) -> Outcome:
    """Take two steps of PCL in a number format; with float16, as many more as overflow and are skipped."""
    method, reference = _method_and_reference("PCL", device)
    step = build_step(method, format)
    return compare(_two_steps(step, reference), BY_PRECISION[format], WRONG)


def check_compiled(device: torch.device) -> Outcome:
    """Take two steps of PCL with `--compile`."""
    if device.type == "cpu" and find_compiler() is None:
        raise Skipped("no C++ compiler was found, which --compile needs on a CPU: install g++ or clang++")
    import torch._inductor.config as inductor

    method, reference = _method_and_reference("PCL", device, peers=2)  # each peer adds seconds of compiling
    method.compile()
    with inductor.patch(compile_threads=1):  # of a pool, every process would import torch
        measured = _two_steps(build_step(method), reference)
    return compare(measured, BY_PRECISION["32"], "leave out --compile, and report it.")


def check_checkpoint(device: torch.device) -> Outcome:
    """Write a checkpoint after a step on the device; read it on the CPU: every tensor to the bit, and logits."""
    method, _ = _method_and_reference("PCL", device)
    fresh, _ = _method_and_reference("PCL", CPU)
    step, fresh_step = build_step(method), build_step(fresh)
    views, labels = fixed_batch(method)
    step([view.to(device) for view in views], labels.to(device), EPOCH)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        checkpoints.save(_state(step).capture(World(device)))
        saved = checkpoints.load()
    assert saved is not None
    _state(fresh_step).restore(saved, World(CPU))
    pairs = zip(method.state_dict().values(), fresh.state_dict().values(), strict=True)
    tensors = [(a.cpu(), b) for a, b in pairs if isinstance(a, Tensor)]
    with torch.no_grad():
        logits = method.eval().logits(views[0].to(device))["mean1"].cpu()
        read = fresh.eval().logits(views[0])["mean1"]
    measured = {
        "weights": max(float((a.double() - b.double()).abs().max()) for a, b in tensors),
        "logits": float((logits - read).norm() / read.norm()),
    }
    return compare(measured, SAVED, "what is saved is not what was trained: report it.")


def _method_and_reference(name: str, device: torch.device, peers: int = SIZE.peers) -> tuple[Method, Method]:
    """Build a method on the device, and the same in float64 on the CPU."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        method = build_method(name, SIZE, peers, SmoothNet, device=CPU)
    return copy.deepcopy(method).to(device), copy.deepcopy(method).double()


def fixed_batch(method: Method) -> tuple[list[Tensor], Tensor]:
    """Return the same random views, and labels of all classes, for every device."""
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(SIZE.batch, *SIZE.shape, generator=generator) for _ in range(method.views)]
    return views, torch.arange(SIZE.batch) % SIZE.classes


def _two_steps(step: Step, reference: Method) -> dict[str, float]:
    """Take two steps that count, and the same in float64; return the differences of terms and of weights."""
    device = next(step.method.parameters()).device
    views, labels = fixed_batch(reference)
    start, reference_step = _flat(reference.parameters()), build_step(reference)
    inputs, targets = [view.to(device) for view in views], labels.to(device)
    terms = step(inputs, targets, EPOCH)
    expected = reference_step([view.double() for view in views], labels, EPOCH)
    reference_step([view.double() for view in views], labels, EPOCH)
    assert step.method.mean is not None
    for _ in range(20):  # a step that overflows halves the scale of the loss and changes nothing
        if step.method.mean.step == 2:
            break
        step(inputs, targets, EPOCH)
    return {"terms": _of_terms(terms, expected), "weights": _of_change(step.method, reference, start)}


def _of_terms(terms: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest difference of a term, by the loss."""
    differences = [abs(terms[name].item() - term.item()) for name, term in expected.items()]
    return max(differences) / abs(expected["loss"].item())


def _of_gradients(method: Method, reference: Method) -> float:
    """Return the largest difference of a tensor's gradients, by its norm and a hundredth of the largest norm."""
    pairs = [
        (p.grad.cpu().double(), q.grad)
        for p, q in zip(method.parameters(), reference.parameters(), strict=True)
        if p.grad is not None and q.grad is not None
    ]
    least = 0.01 * max(float(expected.norm()) for _, expected in pairs)
    return max(float((gradient - e).norm()) / (float(e.norm()) + least) for gradient, e in pairs)


def _of_change(method: Method, reference: Method, start: Tensor) -> float:
    """Return the difference of what the steps changed in weights and averages, by its norm."""
    change = _flat(reference.parameters()) - start
    return float((_flat(method.parameters()) - start - change).norm() / change.norm())


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors])


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Compute convolutions of GPUs in float32, while the context lasts, so that bounds can be tight."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _state(step: Step) -> TrainingState:
    recipe, device = from_options({}), next(step.method.parameters()).device
    rates = Rates(recipe.schedule, step.optimizer, recipe.epochs, 1)
    return TrainingState(step.method, step.optimizer, rates, step.precision, LossMeter(device))
