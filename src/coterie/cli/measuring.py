"""Commands that measure and check this machine: bench, doctor."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Failure, InputError
from .calling import print_json

if TYPE_CHECKING:
    from ..bench.checks import CheckResult


def bench(quick: bool = False, only: str = "", output: str | None = None, json: bool = False) -> None:
    """Measure the speed and memory of training steps on this machine.

    Args:
        quick: use a small network and few rounds: about a minute instead of twenty.
        only: comma-separated sections: steps (each method compared with its expected cost), reference (PCL
            compared with a plain training loop); by default both.
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


def doctor(device: str | None = None, json: bool = False) -> None:
    """Check in two minutes that training computes correct results on this machine and its GPUs.

    Args:
        device: the device to check, such as cuda:0; by default the CPU and every GPU that torch finds.
        json: print JSON, to attach to an issue; the checks are shown on standard error.
    """
    from ..bench.doctor import examine, report_address

    output = sys.stderr if json else sys.stdout

    def show(result: CheckResult) -> None:
        print(_check_line(result), file=output, flush=True)

    result = examine(device, show)
    if json:
        print_json(result)
    statuses = [check["status"] for check in result["checks"]]
    counts = (
        f"{statuses.count('pass')} passed, {statuses.count('fail')} failed, {statuses.count('skipped')} skipped"
    )
    report = "" if json else f" To report: coterie doctor --json > doctor.json, and {report_address()}."
    print(textwrap.fill(f"{counts}.{report}", WIDTH), file=output)
    if not result["passed"]:
        failed = ", ".join(f"{c['name']} ({c['device']})" for c in result["checks"] if c["status"] == "fail")
        raise Failure(f"This machine fails: {failed}.")


WIDTH, MESSAGE_COLUMN = 80, 33


def _check_line(result: CheckResult) -> str:
    """Return a row of the table: status, device, check and, in the last column, the message."""
    start = f"{result.status:<8}{result.device:<7}{result.name:<18}"
    lines = textwrap.wrap(result.message, WIDTH - MESSAGE_COLUMN)
    return (start + f"\n{' ' * MESSAGE_COLUMN}".join(lines)).rstrip()
