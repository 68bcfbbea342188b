"""Count the file operations of a command below a folder, and let one fail, kill the process, or write half.

A command runs in a fork of a process that has imported everything, and so do the trainings that it starts: the
operations of both are counted together. They are opening a file for writing, each write, fsync, renaming, removing
and making a folder.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import torch

from coterie.cli.main import main
from coterie.experiments import launch_local

FaultKind = Literal["kill", "tear", "full", "broken"]
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}
WIDTH, LOG = 16, 1000
"""Bytes of the name of an operation in the file that counts them, and that file's descriptor."""
LONGEST = 120.0
"""Seconds after which a command is taken to hang."""


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

    process = "command"
    """Or `training`: which process this is."""

    def hit(self, name: str, path: object) -> bool:
        """Count an operation; kill or fail here if it is the one; return whether it is to be torn."""
        if not (Path.cwd() / os.fsdecode(path)).is_relative_to(self.root):  # type: ignore[arg-type]
            return False
        os.write(LOG, f"{self.process} {name}\n".rjust(WIDTH + 1).encode())
        if os.lseek(LOG, 0, os.SEEK_CUR) // (WIDTH + 1) - 1 != self.at:
            return False
        if self.kind in ERRORS:
            raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]), os.fsdecode(path))  # type: ignore[arg-type]
        if self.kind == "kill":
            die()
        return True

    def install(self, log: Path) -> None:
        """Replace the functions of this process, for good, and those of the trainings that it starts."""
        # Forks share the descriptor and its place in the file, which is the count.
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(descriptor, LOG)
        os.close(descriptor)
        start = partial(Training, self)
        launch_local.subprocess = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)  # type: ignore
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


class Training:
    """A training that a command starts, as `subprocess.Popen`: a fork, for a new interpreter takes seconds."""

    def __init__(
        self, faults: Faults, command: list[str], cwd: Path, env: Mapping[str, str], stdout: Any, **_: Any
    ):
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(env)
            faults.process = "training"
            os.dup2(stdout.fileno(), 2)
            _leave_open_files()
            _main(command[command.index("coterie") + 1 :], cwd, 2, 2)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> None:
        while self.poll() is None:
            time.sleep(0.01)


@dataclass
class Ended:
    """How a child ended: exit code or minus the signal, its standard error, and the operations counted."""

    code: int
    errors: str
    names: list[str]


def run(words: list[str], folder: Path, faults: Faults, scratch: Path) -> Ended:
    """Run a command in a fork, in a folder, with faults; its output goes to files in `scratch`.

    One that does not end is killed, and raises a TimeoutError.
    """
    errors, names = scratch / "errors", scratch / "names"
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            output = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            faults.install(names)
            _main(words, folder, os.open(os.devnull, os.O_WRONLY), output)
        finally:
            os._exit(98)
    until = time.monotonic() + LONGEST
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            raise TimeoutError(f"{words} does not end: {errors.read_text()}")
        time.sleep(0.002)
    listed = [line.strip() for line in names.read_text().splitlines()]
    return Ended(os.waitstatus_to_exitcode(ended[1]), errors.read_text(), listed)


def _leave_open_files() -> None:
    """Let go of all files of the parent, and of its locks with them, as a new program does."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in (0, 1, 2, LOG, nothing):
            with suppress(OSError):  # that of the listing itself
                os.fstat(descriptor)
                os.dup2(nothing, descriptor)  # not closed: an object of the parent may still do that


def _main(words: list[str], folder: Path, output: int, errors: int) -> NoReturn:
    """Run a command in this fork, in a folder, with these descriptors as its output, and end the process."""
    code = 99
    try:
        os.dup2(errors, 2)
        os.dup2(output, 1)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", closefd=False) for descriptor in (1, 2))
        torch.set_num_threads(1)
        os.chdir(folder)
        main(words)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
