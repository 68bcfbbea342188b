"""How the cost of PCL grows with peers, batch, width and processes.

python benchmarks/growth.py [--quick] [-o FILE]
"""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import run_python, run_script

from coterie.bench.noise import Noise
from coterie.bench.subjects import (
    BenchSize,
    build_method,
    build_step,
    default_cut_of,
    default_device,
    repeat_step,
    stated_cost,
)
from coterie.bench.timing import Call, quartiles_cell, time_in_turns
from coterie.data.streaming import cores
from coterie.models.resnet import ResNet, basic
from coterie.report.table import Table, number, text

PEERS = (1, 2, 3, 4, 5, 6)
WIDTHS = (8, 16, 32)


def measure(size: BenchSize) -> dict[str, Any]:
    torch.manual_seed(0)
    size = replace(size, rounds=max(2, size.rounds // 2))
    return {
        "peers": by_peers(size),
        "batch": by_batch(size),
        "width": by_width(size),
        "processes": by_processes(size),
    }


def _step(subject: str, size: BenchSize, **options: Any) -> Call:
    return repeat_step(build_step(build_method(subject, size, **options)), size)


def by_peers(size: BenchSize) -> dict[str, Any]:
    """Measure a step of PCL with m peers in steps of the plain network, beside the arithmetic."""
    steps = {str(m): _step("PCL", size, peers=m) for m in PEERS}
    times = time_in_turns(_step("Baseline", size), steps, size.rounds)
    cut = default_cut_of(size)
    return {m: {**row, "theory": stated_cost("PCL", cut, int(m))} for m, row in times.items()}


def by_batch(size: BenchSize) -> dict[str, Any]:
    """Measure PCL's images per second by batch, and relative to those of the size's own batch."""
    step = build_step(build_method("PCL", size))
    sizes = [
        replace(size, batch=batch) for batch in (size.batch // 4, size.batch // 2, size.batch, 2 * size.batch)
    ]
    steps = {str(other.batch): repeat_step(step, other) for other in sizes}
    times = time_in_turns(repeat_step(step, size), steps, size.rounds)
    rows = {}
    for batch, row in times.items():
        factor, (low, high) = int(batch) / size.batch, row["quartiles"]
        rows[batch] = {
            "images_per_second": int(batch) / row["seconds"],
            "speed": factor / row["ratio"],
            "quartiles": [factor / high, factor / low],
            "turns": row["turns"],
        }
    return rows


def by_width(size: BenchSize) -> dict[str, Any]:
    """Measure a step of PCL in steps of the plain network of the same width, and its images per second."""
    rows = {}
    network: Any = size.make_network()
    for width in WIDTHS:
        make = partial(ResNet, basic, len(network.stage1), width, width, size.classes, size.shape[0])
        plain, pcl = (_step(subject, size, make=make) for subject in ("Baseline", "PCL"))
        times = time_in_turns(plain, {"PCL": pcl}, size.rounds)["PCL"]
        rows[str(width)] = {**times, "images_per_second": size.batch / times["seconds"]}
    return rows


def by_processes(size: BenchSize) -> dict[str, Any]:
    """Measure a short training's images per second in one process and, with two cores or GPUs, in two.

    Each process has one thread, and the batch is divided between them.
    """
    places = torch.cuda.device_count() if default_device().type == "cuda" else cores()
    counts = (1, 2) if places > 1 else (1,)
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(3 if size.rounds > 2 else 1):
        for count in counts:
            rates[count].append(training_rate(size, count))
    return {
        str(count): {
            "images_per_second": statistics.median(rate),
            "speed": statistics.median(value / alone for value, alone in zip(rate, rates[1], strict=True)),
        }
        for count, rate in rates.items()
    }


def training_rate(size: BenchSize, processes: int) -> float:
    """Return the images per second of the second of two epochs of a real training."""
    images = 2 * size.steps * size.batch
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        options = {
            "method": "PCL",
            "model": size.model,
            "data": f"{Noise.__module__}.Noise",
            "data.images": images,
            "batch": size.batch,
            "epochs": 2,
            "out": out,
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [*(launcher if processes > 1 else []), "-m", "coterie", "train", *arguments]
        run_python(command, OMP_NUM_THREADS="1")
        last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return float(last["time"]["images_per_second"])


def tables(section: dict[str, Any]) -> list[Table]:
    peers = [
        [
            text(m),
            number(row["ratio"], "{:.2f}"),
            quartiles_cell(*row["quartiles"]),
            number(row["theory"], "{:.2f}"),
        ]
        for m, row in section["peers"].items()
    ]
    batch, width = (
        [
            [
                text(name),
                number(row[key], "{:.2f}"),
                quartiles_cell(*row["quartiles"]),
                number(row["images_per_second"]),
            ]
            for name, row in section[kind].items()
        ]
        for kind, key in (("batch", "speed"), ("width", "ratio"))
    )
    processes = [
        [text(count), number(row["speed"], "{:.2f}"), number(row["images_per_second"])]
        for count, row in section["processes"].items()
    ]
    return [
        Table("PCL by number of peers", ["peers", "step / plain step", "quartiles", "theory"], peers),
        Table("PCL by batch", ["batch", "speed", "quartiles", "images per second"], batch),
        Table("PCL by width", ["width", "step / plain step", "quartiles", "images per second"], width),
        Table("PCL by processes of one thread", ["processes", "speed", "images per second"], processes),
    ]


if __name__ == "__main__":
    run_script("growth", measure, tables)
