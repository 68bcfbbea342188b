"""What runs are trained with: a launcher, processes and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import InputError
from .launch_local import LocalLauncher
from .runner import Launcher


@dataclass(frozen=True)
class Resources:
    """Where runs are trained, how many at once, and with how many threads each."""

    kind: Literal["local", "ray"] = "local"
    processes: int | None = None
    """By default one per GPU, without GPUs one per core."""
    threads: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1 or (self.processes is not None and self.processes < 1):
            raise InputError("--processes and --threads must be at least 1.")

    def launcher(self, out: Path, roots: Mapping[str, str]) -> Launcher:
        """Return the launcher of runs in a directory; `roots` is where the data lies by data set."""
        if self.kind == "ray":
            from .launch_ray import RayLauncher

            return RayLauncher(out, roots, self.processes, self.threads)
        return LocalLauncher(out, roots, self.processes, self.threads)
