"""The sections of `coterie bench`, and the result they make together."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..errors import unknown
from ..report.table import Table
from ..runs.environment import environment
from .reference import measure_reference, reference_tables
from .steps import measure_steps, step_tables
from .subjects import FULL, QUICK, BenchSize

BenchSection = dict[str, Any]

SECTIONS: dict[str, tuple[Callable[[BenchSize], BenchSection], Callable[[BenchSection], list[Table]]]] = {
    "steps": (measure_steps, step_tables),
    "reference": (measure_reference, reference_tables),
}
"""How each section is measured, and how it is shown."""


def run_benchmark(quick: bool = False, only: str = "") -> dict[str, Any]:
    """Measure these sections (comma-separated; all by default)."""
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip())) or list(SECTIONS)
    for name in names:
        if name not in SECTIONS:
            raise unknown("section", name, SECTIONS)
    size = QUICK if quick else FULL
    sections = {}
    for name in names:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        sections[name] = SECTIONS[name][0](size)
    machine = {name: value for name, value in environment(0).items() if name not in ("host", "directory")}
    return {"environment": machine, "quick": quick, "size": asdict(size), "sections": sections}


def bench_tables(result: dict[str, Any]) -> list[Table]:
    return [table for name, section in result["sections"].items() for table in SECTIONS[name][1](section)]


def describe_setup(result: dict[str, Any]) -> str:
    """Return one line: network, machine, date, commit."""
    size, machine = result["size"], result["environment"]
    setting = f"{size['model']}, batch {size['batch']}, {size['peers']} peers, {size['rounds']} rounds"
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    gpus = "".join(f", {gpu}" for gpu in machine["gpus"])
    commit = (machine["commit"] or "unknown")[:12] + ("-dirty" if str(machine["commit"]).endswith("dirty") else "")
    return (
        f"{setting}; {machine['processor']}, {machine['cores']} cores, {threads}{gpus}; "
        f"torch {machine['torch']}; {machine['date'][:10]}, commit {commit}."
    )
