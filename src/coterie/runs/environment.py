"""Record what a result depends on: versions, hardware, commits, the command."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .. import __version__

GIT_SECONDS = 5
"""How long git may take, as on a slow network drive, before a run is recorded without its commit."""


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
    """Return the commit of the repository a directory is in, with `-dirty` if files differ from it.

    The repository may be a stranger's, whose own settings name programs for git to start: the monitor of its files
    and filters of their content are turned off, and submodules, which have settings of their own, not looked into.
    """
    try:
        commit = _git(directory, "rev-parse", "--verify", "HEAD")
        if not commit:
            return None
        listed = _git(directory, "config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\.")
        scopes, names = listed.split("\0")[0:-1:2], listed.split("\0")[1::2]
        filters = [name for scope, name in zip(scopes, names, strict=True) if scope not in ("system", "global")]
        status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
        return f"{commit}-dirty" if _git(directory, *status, without=filters) else commit
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):  # no git here, or it does not end
        return None


def _git(directory: Path, *arguments: str, without: Sequence[str] = ()) -> str:
    """Return what git prints, without the line's end; the settings `without` are empty."""
    options = ["--no-optional-locks", "-c", "core.fsmonitor=", "-c", f"core.hooksPath={os.devnull}"]
    # By variables: on the command line, a name with `=` in it would be taken for another.
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)  # after those that the user has set
    variables = {"GIT_CONFIG_COUNT": str(first + len(without))}
    for i, name in enumerate(without, first):
        variables |= {f"GIT_CONFIG_KEY_{i}": name, f"GIT_CONFIG_VALUE_{i}": ""}
    result = subprocess.run(
        ["git", *options, *arguments],
        cwd=directory,
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        timeout=GIT_SECONDS,
    )
    return result.stdout.rstrip("\n")


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
