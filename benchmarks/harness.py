"""What the development benchmarks share: their options, their result file, and processes to measure."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coterie.bench.command import describe_setup
from coterie.bench.subjects import FULL, QUICK, BenchSize
from coterie.report.table import Table, print_table
from coterie.runs.environment import environment

ROOT = Path(__file__).parents[1]


def run_script(
    name: str, measure: Callable[[BenchSize], dict[str, Any]], tables: Callable[[dict[str, Any]], list[Table]]
) -> None:
    """Measure, print the tables, and with -o write the section in the format of `coterie bench -o`."""
    parser = argparse.ArgumentParser(description=(sys.modules[measure.__module__].__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, small batches, few rounds")
    parser.add_argument("-o", "--output", type=Path, help="write the result here, as JSON")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    section = measure(size)
    machine = {key: value for key, value in environment(0).items() if key not in ("host", "directory")}
    result = {
        "environment": machine,
        "quick": arguments.quick,
        "size": asdict(size),
        "sections": {name: section},
    }
    for table in tables(section):
        print_table(table)
    print(describe_setup(result))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


def run_python(arguments: list[str], **variables: str) -> None:
    """Run a Python process that finds this checkout's package and must succeed."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {process.stderr.strip()[-1000:]}")
