"""The command that measures this machine: bench."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError
from .calling import print_json


def bench(quick: bool = False, only: str = "", output: str | None = None, json: bool = False) -> None:
    """Speed and memory on this machine, as ratios beside what they should be.

    Args:
        quick: a small network and few turns: about a minute instead of twenty.
        only: comma-separated sections: steps (every method beside the cost it states), reference (PCL beside a
            training loop written by hand); by default both.
        output: write the result to this JSON file too (-o).
        json: print JSON.
    """
    from json import dumps

    from ..bench.command import bench_tables, describe_setup, run_benchmark
    from ..files import write
    from ..report.table import print_table

    file = Path(output) if output else None
    if file is not None:
        _check_writable(file)
    result = run_benchmark(quick, only)
    try:
        if file is not None:
            write(file, dumps(result, indent=2) + "\n")
    finally:  # a disk that is full by now loses nothing
        if json:
            print_json(result)
        else:
            for table in bench_tables(result):
                print_table(table)
            print(describe_setup(result))


def _check_writable(file: Path) -> None:
    """Refuse a file that cannot be written before minutes have gone into its content."""
    if not file.parent.is_dir():
        raise InputError(f"There is no directory {file.parent} to write {file.name} to: make it first.")
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise InputError(f"{file} cannot be written: choose another --output.")
