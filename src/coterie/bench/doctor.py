"""`coterie doctor`: the checks of this machine in their order, and the result they make together."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import torch

from ..methods import available
from .checks import Check, CheckResult, make_check
from .doctor_data import check_files, check_views
from .doctor_machine import check_gpus, check_hardware, check_versions, describe_machine, find_devices
from .doctor_runs import TrainingRuns
from .doctor_speed import check_speed
from .doctor_steps import (
    BY_PRECISION,
    check_checkpoint,
    check_compiled,
    check_method,
    check_precision,
)

SCHEMA = 1
"""The version of the JSON file's form."""


def examine(device: str | None, show: Callable[[CheckResult], None]) -> dict[str, Any]:
    """Make all checks on this device, or on every one that torch finds; `show` gets each result at once."""
    devices = find_devices(device)
    machine = describe_machine()
    results: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="coterie-doctor-") as folder:
        for check in _checks(machine, devices, Path(folder)):
            results.append(make_check(check))
            show(results[-1])
    return {
        "schema": SCHEMA,
        "coterie": machine.pop("coterie"),
        "commit": machine.pop("commit"),
        "machine": machine,
        "checks": [_plain(result) for result in results],
        "passed": all(result.status != "fail" for result in results),
    }


def _plain(result: CheckResult) -> dict[str, Any]:
    """Return a result as JSON can hold it: what is not finite becomes null, and the message names it."""
    measured = {name: value if math.isfinite(value) else None for name, value in result.measured.items()}
    return {**asdict(result), "measured": measured}


def _checks(machine: dict[str, Any], devices: list[torch.device], folder: Path) -> Iterator[Check]:
    yield Check("versions", "host", partial(check_versions, machine))
    yield Check("hardware", "host", partial(check_hardware, machine))
    yield Check("GPUs", "host", partial(check_gpus, machine))
    for device in devices:
        name = str(device)
        place = folder / name.replace(":", "-")
        place.mkdir()
        runs = TrainingRuns(device, place)
        for method in available():
            yield Check(f"step of {method}", name, partial(check_method, method, device))
        for format in BY_PRECISION:
            remedy = f"leave out --precision {format}, and report it." if format != "32" else "report it."
            yield Check(f"precision {format}", name, partial(check_precision, format, device), remedy)
        remedy = "leave out --compile, or install what it names."
        yield Check("compile", name, partial(check_compiled, device), remedy)
        yield Check("checkpoint", name, partial(check_checkpoint, device))
        yield Check("views", name, partial(check_views, device))
        yield Check("image files", name, partial(check_files, device))
        yield Check("killed, continued", name, runs.check_killed)
        remedy = "train with one process, and report it."
        yield Check("two processes", name, runs.check_two_processes, remedy)
        yield Check("steps per second", name, partial(check_speed, device))


def report_address() -> str:
    """Say where reports go: to the issue tracker that the package names, if it names one."""
    try:
        urls = metadata("coterie").get_all("Project-URL") or []
    except PackageNotFoundError:
        urls = []
    trackers = [url.partition(",")[2].strip() for url in urls if "issue" in url.lower() or "bug" in url.lower()]
    return f"attach it to an issue at {trackers[0]}" if trackers else "attach it to an issue of the project"
