"""Take from Python what Windows does not have. A process with this folder in PYTHONPATH begins here.

What a library needs of it on this system is imported before.
"""

import builtins
import multiprocessing
import os
import pathlib
import signal
import sys

import filelock  # noqa: F401  # locks by fcntl here, by msvcrt on Windows
import torch.utils.data  # noqa: F401

HIDDEN = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")
for name in HIDDEN:
    sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ModuleNotFoundError
for name in ("fork", "forkpty", "killpg", "setsid", "sched_getaffinity", "sysconf", "uname", "statvfs"):
    delattr(os, name)
for name in ("SIGUSR1", "SIGHUP", "SIGQUIT", "SIGALRM"):
    delattr(signal, name)
# Ctrl-Break: the signal, and what a program sends to another's group.
signal.SIGBREAK = signal.CTRL_BREAK_EVENT = signal.SIGUSR2  # type: ignore[attr-defined]
multiprocessing.set_start_method("spawn", force=True)

_open = os.open


def open_file(path, flags, *arguments, **options):  # type: ignore[no-untyped-def]
    """Refuse directories, as Windows does; Python's own modules open them here."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    if caller.startswith("coterie.") and pathlib.Path(path).is_dir():
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, flags, *arguments, **options)


os.open = open_file  # type: ignore[assignment]
_replace, _refused = pathlib.Path.replace, set()


def replace(self, target):  # type: ignore[no-untyped-def]
    """Refuse the first attempt at each file, as if another program were reading it."""
    if str(target) not in _refused:
        _refused.add(str(target))
        raise PermissionError(13, "The process cannot access the file because it is being used", str(target))
    return _replace(self, target)


pathlib.Path.replace = replace  # type: ignore[assignment,method-assign]
builtins.windows_like = True  # type: ignore[attr-defined]  # for a test that it was here
