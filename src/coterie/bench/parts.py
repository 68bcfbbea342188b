"""Section `parts`: what a PCL step is made of, and evaluation and deployment beside the plain network."""

from __future__ import annotations

import copy
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from ..config.options import from_options
from ..config.schedule import Rates, Steps
from ..deploy.latency import side_by_side
from ..methods import Method
from ..metrics.evaluate import evaluate
from ..peers.net import Peers
from ..runs.checkpoints import Checkpoints
from ..runs.directory import Run as RunDirectory
from ..training.distributed import Piece, World
from ..training.meters import LossMeter
from ..training.precision import Precision
from ..training.progress import ProgressReporter
from ..training.state import State
from .noise import Noise
from .size import Size
from .subjects import EPOCH, Stepper, device, inputs, made
from .timing import Run, in_turns

EPOCH_STEPS = 391
"""Of an epoch of CIFAR in batches of 128: the engine logs and saves once in it."""

EPOCHS = 300
"""Of the paper's training: the records that are already there when the last one is added."""

OTHER = ("data", "averages", "watch and progress", "record", "checkpoint")
"""The parts that are neither forward, backward nor optimiser."""


def measure(size: Size) -> dict[str, Any]:
    return {"step": _step(size), "evaluation": _evaluation(size), "export": _export(size)}


def _step(size: Size) -> dict[str, Any]:
    """Each part by itself, between two whole steps."""
    torch.manual_seed(0)
    stepper = Stepper(made("PCL", size), size.batch, size)
    method, where = stepper.step.method, device()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parts: dict[str, tuple[Run, float]] = {
            "data": (_views(size), 1),
            "loss terms": (_terms(method, size), 1),
            "optimiser": (_optimiser(stepper), 1),
            "averages": (method.after_step, 1),
            "watch and progress": (stack.enter_context(_Watched(stepper, size, where)), 1),
            "record": (_log(method, size, folder), EPOCH_STEPS),
            "checkpoint": (_save(stepper, folder), EPOCH_STEPS),
        }
        found = in_turns(stepper, {name: run for name, (run, _) in parts.items()}, size.rounds)
    shares = {
        name: {
            "share": found[name].ratio / every,
            "quartiles": [found[name].low / every, found[name].high / every],
            "seconds": found[name].seconds,
            "turns": found[name].turns,
        }
        for name, (_, every) in parts.items()
    }
    return {"parts": shares, "other": sum(shares[name]["share"] for name in OTHER), "epoch_steps": EPOCH_STEPS}


def _views(size: Size) -> Run:
    data, where = Noise(size.batch), device()
    data.load()
    return lambda: next(data.stream([np.arange(size.batch)], size.peers, 0, 0, where))


def _optimiser(stepper: Stepper) -> Run:
    """With gradients that stay: a step clears those of its own."""
    gradients = [torch.zeros_like(p) for p in stepper.step.method.parameters() if p.requires_grad]

    def step() -> None:
        trained = [p for p in stepper.step.method.parameters() if p.requires_grad]
        for p, gradient in zip(trained, gradients, strict=True):
            p.grad = gradient
        stepper.step.optimizer.step()
        stepper.step.optimizer.zero_grad()

    return step


class _Answered(nn.Module):
    """Peers that have answered already."""

    def __init__(self, peers: Peers) -> None:
        super().__init__()
        self.peers, self.size, self.num_classes = peers, len(peers.logits), peers.logits.shape[-1]

    def forward(self, views: Any, joint: bool = False) -> Peers:
        return self.peers


def _terms(method: Method, size: Size) -> Run:
    """The loss terms, forward and backward, without the networks: the real ones, on answers given before."""
    views, labels = inputs(method.views, size.batch, size)
    lone = copy.deepcopy(method)
    assert lone.mean_method is not None
    for part, trained in ((lone, True), (lone.mean_method, False)):
        with torch.no_grad():
            said = part.net(views)
        answers = Peers(
            said.logits.requires_grad_(trained),
            tuple(f if f is None else f.requires_grad_(trained) for f in said.features),
            said.maps,
            said.trunk,
        )
        part.net = _Answered(answers)  # type: ignore[assignment]
    return lambda: lone(views, labels, EPOCH)["loss"].backward()


class _Watched:
    """What the engine adds to its sums and shows of a step."""

    def __init__(self, stepper: Stepper, size: Size, where: torch.device) -> None:
        self.watch, self.show = (
            LossMeter(where),
            ProgressReporter("bench", 1, EPOCH_STEPS, console=Console(stderr=True, quiet=True)),
        )
        self.terms = {name: term.detach() for name, term in stepper().items()}
        self.piece = Piece(np.arange(size.batch), size.batch, 1.0)

    def __enter__(self) -> Run:
        self.show.__enter__()
        return self._step

    def __exit__(self, *error: Any) -> None:
        self.show.__exit__(None, None, None)

    def _step(self) -> None:
        self.watch.add(self.terms, self.piece, 0, 0.1)
        self.show.step(self.watch)


def _log(method: Method, size: Size, folder: Path) -> Run:
    """A record of an epoch, added to those of the epochs before it."""
    (images,), labels = inputs(1, size.batch, size)
    record = evaluate(method, [(images, labels)], device())
    run = RunDirectory(folder)
    run.metrics_file.write_text(EPOCHS * (json.dumps(record) + "\n"))
    return lambda: run.log(record)


def _save(stepper: Stepper, folder: Path) -> Run:
    """All that the engine keeps, written, read back and synced."""
    where = device()
    rates = Rates(Steps(), stepper.step.optimizer, 1, EPOCH_STEPS)
    state = State(stepper.step.method, stepper.step.optimizer, rates, Precision(where), LossMeter(where))
    checkpoints, world = Checkpoints(folder), World(where)
    return lambda: checkpoints.save(state.capture(world))


def _evaluation(size: Size) -> dict[str, Any]:
    """Every score of the plain network, against its forward pass over the same images."""
    torch.manual_seed(0)
    method, where = made("Baseline", size), device()
    batches = [(images, labels) for (images,), labels in (inputs(1, 2 * size.batch, size) for _ in range(4))]
    network = copy.deepcopy(method.net.peers[0]).eval()

    @torch.no_grad()
    def plain() -> None:
        for images, _ in batches:
            network(images)

    return in_turns(plain, {"scores": lambda: evaluate(method, batches, where)}, size.rounds)["scores"].plain()


def _export(size: Size) -> dict[str, Any]:
    """Latency of the deployed student in that of the plain network, by runtime; ONNX where it is installed."""
    options = {"method": "PCL", "model": size.model, "data": {"class_path": f"{Noise.__module__}.Noise"}}
    recipe = from_options(options)
    found = side_by_side(recipe, recipe.build(), size.seconds)
    student, plain = found["student"], found["plain"]
    return {
        runtime: student[runtime]["latency_ms"] / plain[runtime]["latency_ms"]
        for runtime in ("torch", "onnx")
        if runtime in student
    } | {figure: student[figure] / plain[figure] for figure in ("parameters", "macs")}
