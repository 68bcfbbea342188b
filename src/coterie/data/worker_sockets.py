"""The directory of the sockets by which workers hand over batches: removed at the exit, or by a later run."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path

from filelock import BaseFileLock, Timeout

from ..files import lock_file

PREFIX = "coterie-sockets-"
LOCK = "lock"
"""Held by the process that made the directory, as long as it lives."""
LONGEST_PATH = 60
"""Of the temporary directory: the path of a socket has at most 107 bytes."""
OLD = 3600.0
"""Seconds after which a directory that nobody holds is abandoned, not just being made."""


def make_socket_directory() -> None:
    """Give the workers of this process one directory for their sockets.

    Python would make one for each worker, `pymp-...`, that stays where a worker is killed, and that cannot be used
    where the path of the temporary directory is long.
    """
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    if os.name == "nt" or settings.get("tempdir"):
        return
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > LONGEST_PATH:
        parent = Path("/tmp")
    with suppress(OSError):  # then Python tries
        remove_abandoned(parent)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = lock_file(directory / LOCK)
        with suppress(OSError):  # a file system without locks: it may be removed after an hour, as by any cleaner
            lock.acquire()
        settings["tempdir"] = str(directory)
        Finalize(None, _remove, (directory, lock), exitpriority=-100)  # after the workers have ended


def remove_abandoned(parent: Path) -> None:
    """Remove the directories of this user's processes that were killed."""
    for directory in parent.glob(PREFIX + "*"):
        with suppress(OSError, Timeout):  # Timeout: its process lives
            status = directory.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if ours and time.time() - status.st_mtime > OLD:
                with lock_file(directory / LOCK):
                    shutil.rmtree(directory)


def _remove(directory: Path, lock: BaseFileLock) -> None:
    lock.release()
    shutil.rmtree(directory, ignore_errors=True)
    multiprocessing.current_process()._config["tempdir"] = None  # type: ignore[attr-defined]
