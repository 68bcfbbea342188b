"""Section `growth`: how the cost of PCL grows with peers, batch, width and processes."""

from __future__ import annotations

import json
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import models
from ..data.streaming import cores
from ..models.resnet import ResNet, basic
from .noise import Noise
from .size import Size
from .startup import python
from .subjects import Stepper, cut_of, device, made, theory
from .timing import in_turns

PEERS = (1, 2, 3, 4, 5, 6)


def measure(size: Size) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "peers": _peers(size),
        "batch": _batch(size),
        "width": _width(size),
        "processes": _processes(size),
    }


def _peers(size: Size) -> dict[str, Any]:
    """A step of PCL with m peers in steps of the plain network, beside the arithmetic."""
    plain = Stepper(made("Baseline", size), size.batch, size)
    steppers = {str(m): Stepper(made("PCL", size, peers=m), size.batch, size) for m in PEERS}
    found = in_turns(plain, steppers, _few(size))
    cut = cut_of(size)
    return {m: {**times.plain(), "theory": theory("PCL", cut, int(m))} for m, times in found.items()}


def _batch(size: Size) -> dict[str, Any]:
    """Images per second of PCL by batch size, and in those of the size's own batch."""
    method = made("PCL", size)
    steppers = {str(batch): Stepper(method, batch, size) for batch in size.batches}
    found = in_turns(Stepper(method, size.batch, size), steppers, _few(size))
    return {
        batch: {
            "images_per_second": int(batch) / times.seconds,
            "speed": int(batch) / size.batch / times.ratio,
            "quartiles": [int(batch) / size.batch / ratio for ratio in (times.high, times.low)],
            "turns": times.turns,
        }
        for batch, times in found.items()
    }


def _width(size: Size) -> dict[str, Any]:
    """A step of PCL in steps of the plain network of the same width, and its images per second."""
    found = {}
    network: Any = models.factory(size.model, size.classes, size.shape[0])()
    for width in size.widths:
        make = partial(ResNet, basic, len(network.stage1), width, width, size.classes, size.shape[0])
        plain, pcl = (Stepper(made(row, size, make=make), size.batch, size) for row in ("Baseline", "PCL"))
        times = in_turns(plain, {"PCL": pcl}, _few(size))["PCL"]
        found[str(width)] = {**times.plain(), "images_per_second": size.batch / times.seconds}
    return found


def _processes(size: Size) -> dict[str, Any]:
    """Images per second of a short training in one process and, where there are two cores or GPUs, in two.

    Each process has one thread, and the batch is divided between them.
    """
    places = torch.cuda.device_count() if device().type == "cuda" else cores()
    counts = (1, 2) if places > 1 else (1,)
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(3 if size.rounds > 5 else 1):
        for count in counts:
            rates[count].append(_trained(size, count))
    found = {str(count): {"images_per_second": statistics.median(rate)} for count, rate in rates.items()}
    for count, rate in rates.items():
        found[str(count)]["speed"] = statistics.median(
            there / alone for there, alone in zip(rate, rates[1], strict=True)
        )
    return found


def _trained(size: Size, processes: int) -> float:
    """Images per second of the second of two epochs of a real training."""
    images = 2 * size.steps * size.batch
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = {
            "method": "PCL",
            "model": size.model,
            "data": f"{Noise.__module__}.Noise",
            "data.images": images,
            "batch": size.batch,
            "epochs": 2,
            "out": run,
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [*(start if processes > 1 else ["-m"]), "coterie", "train", *arguments]
        python(command, OMP_NUM_THREADS="1")
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return float(last["time"]["images_per_second"])


def _few(size: Size) -> int:
    return max(2, size.rounds // 2)
