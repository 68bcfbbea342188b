"""Count the file operations of a command below a folder, and let one fail, kill the process, or write half.

A command runs in a fork of a process that has imported everything. Operations are opening a file for writing, each
write, fsync, renaming, removing and making a folder.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

FaultKind = Literal["kill", "tear", "full", "broken"]
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}


@dataclass
class Faults:
    """Operations below a folder: counted, and one of them hit.

    Args:
        root: the folder.
        at: which operation is hit, from 0 on; by default none.
        kind: the process is killed before it, killed in its middle, or it fails: disk full, or broken.
    """

    root: str
    at: int = -1
    kind: FaultKind = "kill"

    def __post_init__(self) -> None:
        self.names: list[str] = []

    def hit(self, name: str, path: object) -> bool:
        """Count an operation; kill or fail here if it is the one; return whether it is to be torn."""
        if not (Path.cwd() / os.fsdecode(path)).is_relative_to(self.root):  # type: ignore[arg-type]
            return False
        self.names.append(name)
        if len(self.names) - 1 != self.at:
            return False
        if self.kind in ERRORS:
            raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]), os.fsdecode(path))  # type: ignore[arg-type]
        if self.kind == "kill":
            die()
        return True

    def install(self) -> None:
        """Replace the functions of this process, for good."""
        real_open = io.open

        def open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return real_open(file, mode, *args, **options)
            if self.hit("open", file):
                real_open(file, mode, *args, **options).close()
                die()
            return _File(real_open(file, mode, *args, **options), self)

        io.open = builtins.open = open  # type: ignore[assignment]
        for name in ("replace", "rename", "unlink", "remove", "mkdir", "fsync"):
            setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Any, *args: Any, **options: Any) -> Any:
            target = Path(f"/proc/self/fd/{path}").readlink() if name == "fsync" else path
            torn = self.hit(name, target)
            try:
                return function(path, *args, **options)
            finally:
                if torn:
                    die()

        return counted


class _File:
    """A file whose writes are counted."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, data: Any) -> int:
        if self._faults.hit("write", self._file.name):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            die()
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Ended:
    """How a child ended: exit code or minus the signal, its standard error, and the operations that it counted."""

    code: int
    errors: str
    names: list[str]


def run(words: list[str], folder: Path, faults: Faults, scratch: Path) -> Ended:
    """Run a command in a fork, in a folder, with faults; its output goes to files in `scratch`."""
    errors, names = scratch / "errors", scratch / "names"
    names.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(words, folder, faults, errors, names)
    _, status = os.waitpid(child, 0)
    listed = names.read_text().split() if names.exists() else []
    return Ended(os.waitstatus_to_exitcode(status), errors.read_text(), listed)


def _child(words: list[str], folder: Path, faults: Faults, errors: Path, names: Path) -> None:
    from coterie.cli.main import main

    code = 99
    try:
        output = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        torch.set_num_threads(1)
        os.chdir(folder)
        faults.install()
        main(words)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    names.write_text("\n".join(faults.names))
    os._exit(code)
