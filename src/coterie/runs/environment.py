"""Record what a result depends on: versions, hardware, commits, the command."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .. import __version__


def environment(seed: int, processes: int = 1) -> dict[str, Any]:
    """Return the versions, hardware, commits and command of this process as plain values."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([*_program(), *sys.argv[1:]]),
        "directory": str(Path.cwd()),
        "seed": seed,
        "processes": processes,
        "coterie": __version__,
        "commit": _commit(Path(__file__).parent),
        "project_commit": _commit(Path.cwd()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in ("torchvision", "timm", "numpy")},
        "cuda": torch.version.cuda,
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": _memory(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _program() -> list[str]:
    program = sys.argv[0]
    return ["python", program] if program.endswith(".py") and Path(program).name != "__main__.py" else ["coterie"]


def _commit(directory: Path) -> str | None:
    """Return the commit of the repository a directory is in, with `-dirty` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        result = subprocess.run(command, cwd=directory, capture_output=True, encoding="utf-8", errors="replace")
    except OSError:  # no git here
        return None
    return result.stdout.strip() or None


def _memory() -> int | None:
    """Return the bytes of memory of this machine, or None where the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
