"""What a PCL step is made of, and evaluation and deployment beside the plain network.

python benchmarks/parts.py [--quick] [-o FILE]
"""

from __future__ import annotations

import copy
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import run_script
from rich.console import Console
from torch import Tensor, nn

from coterie.bench.noise import Noise
from coterie.bench.subjects import (
    EPOCH,
    BenchSize,
    build_method,
    build_step,
    default_device,
    random_batch,
    repeat_step,
)
from coterie.bench.timing import Call, quartiles_cell, time_in_turns
from coterie.config.options import from_options
from coterie.config.schedule import Rates, Steps
from coterie.data.sampler import Piece
from coterie.deploy.latency import measure_costs
from coterie.methods import Method
from coterie.metrics.evaluate import evaluate
from coterie.peers.net import Peers
from coterie.report.table import Cell, Table, number, text
from coterie.runs.checkpoints import Checkpoints
from coterie.runs.directory import RunDirectory
from coterie.runs.records import encode_record
from coterie.training.distributed import World
from coterie.training.meters import LossMeter
from coterie.training.precision import Precision
from coterie.training.progress import ProgressReporter
from coterie.training.state import TrainingState
from coterie.training.step import Step

EPOCH_STEPS = 391
"""Of an epoch of CIFAR in batches of 128: the engine logs and saves once in it."""

EPOCHS = 300
"""Of the paper's training: the records that are already there when the last one is added."""

OTHER = ("data", "averages", "watch and progress", "record", "checkpoint")
"""The parts that are neither forward, backward nor optimiser."""


def measure(size: BenchSize) -> dict[str, Any]:
    return {"step": measure_parts(size), "evaluation": measure_evaluation(size), "export": measure_export(size)}


def measure_parts(size: BenchSize) -> dict[str, Any]:
    """Time each part by itself, between two whole steps."""
    torch.manual_seed(0)
    method = build_method("PCL", size)
    step = build_step(method)
    whole_step = repeat_step(step, size)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parts: dict[str, tuple[Call, float]] = {
            "data": (_views(size), 1),
            "loss terms": (loss_terms(method, size), 1),
            "optimiser": (_optimizer(step), 1),
            "averages": (method.after_step, 1),
            "watch and progress": (stack.enter_context(_Reported(whole_step(), size)), 1),
            "record": (_log(method, size, folder), EPOCH_STEPS),
            "checkpoint": (_save(step, folder), EPOCH_STEPS),
        }
        times = time_in_turns(whole_step, {name: call for name, (call, _) in parts.items()}, size.rounds)
    shares = {
        name: {
            "share": times[name]["ratio"] / steps,
            "quartiles": [value / steps for value in times[name]["quartiles"]],
            "seconds": times[name]["seconds"],
            "turns": times[name]["turns"],
        }
        for name, (_, steps) in parts.items()
    }
    return {"parts": shares, "other": sum(shares[name]["share"] for name in OTHER), "epoch_steps": EPOCH_STEPS}


def _views(size: BenchSize) -> Call:
    data, device = Noise(size.batch), default_device()
    data.load()
    return lambda: next(data.stream([np.arange(size.batch)], size.peers, 0, 0, device))


def _optimizer(step: Step) -> Call:
    """Return the optimiser's part, with gradients that stay: a step clears its own."""
    trained = [p for p in step.method.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) for p in trained]

    def update() -> None:
        for p, gradient in zip(trained, gradients, strict=True):
            p.grad = gradient
        step.optimizer.step()
        step.optimizer.zero_grad()

    return update


class _FixedPeers(nn.Module):
    """Peers that return outputs computed before."""

    def __init__(self, peers: Peers) -> None:
        super().__init__()
        self.peers, self.size, self.num_classes = peers, len(peers.logits), peers.logits.shape[-1]

    def forward(self, views: Any, joint: bool = False) -> Peers:
        return self.peers


def loss_terms(method: Method, size: BenchSize) -> Call:
    """Return the real loss terms, forward and backward, without the networks: on outputs computed before."""
    views, labels = random_batch(method.views, size)
    alone = copy.deepcopy(method)
    assert alone.mean_method is not None
    for part, trained in ((alone, True), (alone.mean_method, False)):
        with torch.no_grad():
            peers = part.net(views)
        outputs = Peers(
            peers.logits.requires_grad_(trained),
            tuple(f if f is None else f.requires_grad_(trained) for f in peers.features),
            peers.maps,
            peers.trunk,
        )
        part.net = _FixedPeers(outputs)  # type: ignore[assignment]
    return lambda: alone(views, labels, EPOCH)["loss"].backward()


class _Reported:
    """What the training loop adds to its sums and shows of a step."""

    def __init__(self, terms: dict[str, Tensor], size: BenchSize) -> None:
        self.meter = LossMeter(default_device())
        self.reporter = ProgressReporter("bench", 1, EPOCH_STEPS, console=Console(stderr=True, quiet=True))
        self.terms = {name: term.detach() for name, term in terms.items()}
        self.piece = Piece(np.arange(size.batch), size.batch, 1.0)

    def __enter__(self) -> Call:
        self.reporter.__enter__()
        return self._report

    def __exit__(self, *error: Any) -> None:
        self.reporter.__exit__(None, None, None)

    def _report(self) -> None:
        self.meter.add(self.terms, self.piece, 0, 0.1)
        self.reporter.step(self.meter)


def _log(method: Method, size: BenchSize, folder: Path) -> Call:
    """Return the logging of an epoch's record after those of the epochs before it."""
    (images,), labels = random_batch(1, size)
    record = evaluate(method, [(images, labels)], default_device())
    run = RunDirectory(folder)
    for _ in range(EPOCHS):
        run.records += encode_record(record, run.id)
    return lambda: run.log(record)


def _save(step: Step, folder: Path) -> Call:
    """Return a save of all that the training keeps: written, read back and synced."""
    device = default_device()
    rates = Rates(Steps(), step.optimizer, 1, EPOCH_STEPS)
    state = TrainingState(step.method, step.optimizer, rates, Precision(device), LossMeter(device))
    checkpoints, world = Checkpoints(folder), World(device)
    return lambda: checkpoints.save(state.capture(world))


def measure_evaluation(size: BenchSize) -> dict[str, Any]:
    """Time every score of the plain network in forward passes over the same images."""
    torch.manual_seed(0)
    method, device = build_method("Baseline", size), default_device()
    double = replace(size, batch=2 * size.batch)
    batches = [(images, labels) for (images,), labels in (random_batch(1, double) for _ in range(4))]
    network = copy.deepcopy(method.net.peers[0]).eval()

    @torch.no_grad()
    def forward() -> None:
        for images, _ in batches:
            network(images)

    return time_in_turns(forward, {"scores": lambda: evaluate(method, batches, device)}, size.rounds)["scores"]


def measure_export(size: BenchSize) -> dict[str, Any]:
    """Measure the deployed student's latency in that of the plain network, by runtime; ONNX if installed."""
    options = {"method": "PCL", "model": size.model, "data": {"class_path": f"{Noise.__module__}.Noise"}}
    recipe = from_options(options)
    costs = measure_costs(recipe, recipe.build(), seconds=5.0 if size.rounds > 5 else 0.3)
    student, plain = costs["student"], costs["plain"]
    return {
        runtime: student[runtime]["latency_ms"] / plain[runtime]["latency_ms"]
        for runtime in ("torch", "onnx")
        if runtime in student
    } | {figure: student[figure] / plain[figure] for figure in ("parameters", "macs")}


def tables(section: dict[str, Any]) -> list[Table]:
    step, evaluation, export = section["step"], section["evaluation"], section["export"]
    rows = [
        [
            text(name),
            _percent(row["share"]),
            quartiles_cell(100 * row["quartiles"][0], 100 * row["quartiles"][1], " %"),
            number(row["seconds"], "{:.3g}"),
        ]
        for name, row in step["parts"].items()
    ]
    rows.append([text("all but forward, backward, optimiser"), _percent(step["other"]), text(""), text("")])
    note = f"Record and checkpoint are spread over {step['epoch_steps']} steps; their seconds are of one."
    ratios = [
        [
            text("evaluation / a no-grad forward pass"),
            number(evaluation["ratio"], "{:.3f}"),
            quartiles_cell(*evaluation["quartiles"]),
        ],
        *(
            [text(f"latency of student / plain network, {runtime}"), number(export[runtime], "{:.3f}"), text("")]
            for runtime in ("torch", "onnx")
            if runtime in export
        ),
    ]
    return [
        Table("Parts of a PCL step", ["part", "share", "quartiles", "seconds"], rows, note),
        Table("Beside the plain network", ["", "ratio", "quartiles"], ratios),
    ]


def _percent(share: float) -> Cell:
    return Cell(f"{100 * share:.2f} %", share)


if __name__ == "__main__":
    run_script("parts", measure, tables)
