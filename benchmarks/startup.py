"""Seconds until a command answers, in real processes.

python benchmarks/startup.py [-o FILE]
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from typing import Any

import numpy as np
from harness import run_python, run_script

from coterie.bench.subjects import BenchSize
from coterie.bench.timing import quartiles_cell, time_call
from coterie.report.table import Table, number, text

TURNS = 3

# The real command, up to the end of its first step.
FIRST_STEP = """
import os, sys
from coterie.cli import main as cli
from coterie.training import progress
progress.ProgressReporter.step = lambda *_: os._exit(0)
cli.main(sys.argv[1:])
sys.exit("no step was taken")
"""


def measure(size: BenchSize) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        train = ["-c", FIRST_STEP, "train", "--data", "digits", "--model", "resnet8", "--out"]
        return {
            "coterie --help": _repeat([["-m", "coterie", "--help"]] * TURNS),
            "coterie train, to its first step": _repeat([[*train, f"{folder}/{turn}"] for turn in range(TURNS)]),
        }


def _repeat(commands: list[list[str]]) -> dict[str, Any]:
    seconds = [time_call(partial(run_python, command)) for command in commands]
    quartiles = np.quantile(seconds, [0.25, 0.75]).tolist()
    return {"seconds": statistics.median(seconds), "quartiles": quartiles, "turns": len(seconds)}


def tables(section: dict[str, Any]) -> list[Table]:
    rows = [
        [text(name), number(row["seconds"], "{:.3g}"), quartiles_cell(*row["quartiles"])]
        for name, row in section.items()
    ]
    return [Table("Start-up", ["command", "seconds", "quartiles"], rows)]


if __name__ == "__main__":
    run_script("startup", measure, tables)
