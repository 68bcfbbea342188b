"""Section `steps`: time and peak memory of a training step of every method, relative to the plain network."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..report.table import Cell, Table, number, text
from .naive_pcl import build_naive_step
from .subjects import SUBJECTS, BenchSize, build_method, build_step, default_cut_of, repeat_step, stated_cost
from .timing import Call, peak_memory, quartiles_cell, time_in_turns

RECOMPUTED = "PCL --checkpoint-activations"
REFERENCE = "PCL, reference"


def measure_steps(size: BenchSize) -> dict[str, Any]:
    torch.manual_seed(0)
    steps = {subject: _build(subject, size) for subject in SUBJECTS}
    times = time_in_turns(steps["Baseline"], steps, size.rounds)
    memory = {subject: peak_memory(partial(_build, subject, size)) for subject in SUBJECTS}
    memory[RECOMPUTED] = peak_memory(partial(_build, "PCL", size, checkpoint_activations=True))
    memory[REFERENCE] = peak_memory(partial(build_naive_step, size))
    cut = default_cut_of(size)
    methods = {
        subject: {
            **times[subject],
            "theory": stated_cost(subject, cut, size.peers),
            "memory": memory[subject],
            "memory_ratio": memory[subject] / memory["Baseline"],
        }
        for subject in SUBJECTS
    }
    beside_reference = {
        name: {"bytes": memory[name], "to_reference": memory[name] / memory[REFERENCE]}
        for name in ("PCL", RECOMPUTED, REFERENCE)
    }
    return {"methods": methods, "branch_share": cut.share, "memory": beside_reference}


def _build(subject: str, size: BenchSize, checkpoint_activations: bool = False) -> Call:
    method = build_method(subject, size, checkpoint_activations=checkpoint_activations)
    return repeat_step(build_step(method), size)


def step_tables(section: dict[str, Any]) -> list[Table]:
    columns = ["method", "step / plain step", "quartiles", "theory", "above it", "seconds", "memory / plain", "MB"]
    rows = [
        [
            text(subject),
            number(row["ratio"], "{:.2f}"),
            quartiles_cell(*row["quartiles"]),
            number(row["theory"], "{:.2f}"),
            number(100 * (row["ratio"] / row["theory"] - 1), "{:+.0f} %"),
            number(row["seconds"], "{:.3g}"),
            number(row["memory_ratio"], "{:.2f}"),
            _megabytes(row["memory"]),
        ]
        for subject, row in section["methods"].items()
    ]
    memory = [
        [text(name), _megabytes(row["bytes"]), number(row["to_reference"], "{:.2f}")]
        for name, row in section["memory"].items()
    ]
    return [
        Table("A training step", columns, rows),
        Table("Peak memory of a PCL step", ["", "MB", "/ reference"], memory),
    ]


def _megabytes(value: float) -> Cell:
    return Cell(f"{value / 1e6:,.0f}", value)
