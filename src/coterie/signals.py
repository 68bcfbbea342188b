"""Record stop signals, so that a run can finish its step and save before it ends."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGBREAK") if hasattr(signal, name)
)
"""Those that this system has: Windows has SIGBREAK (Ctrl-Break) and no SIGUSR1."""


class Signals:
    """Record the first stop signal inside this context; a second one has its usual effect.

    A signal within a second of the first counts as the first: `timeout` sends it to a process and to its group.
    """

    on_sigterm: Callable[[], None] | None = None
    """Called from a thread when SIGTERM arrives, also while the main thread is inside C code."""

    def __init__(self) -> None:
        self.seen: str | None = None
        self._since = 0.0
        self._handlers: dict[signal.Signals, Any] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._wakeup = -1

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._handlers = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
            self._sockets = socket.socketpair()
            self._sockets[1].setblocking(False)
            # A handler waits until the main thread is back in Python; what is written here arrives at once.
            self._wakeup = signal.set_wakeup_fd(self._sockets[1].fileno(), warn_on_full_buffer=False)
            _in_use.add(self)
            threading.Thread(target=self._listen, args=(self._sockets[0],), daemon=True).start()
        return self

    def _listen(self, reader: socket.socket) -> None:
        with reader:
            while number := reader.recv(1):
                if number[0] == signal.SIGTERM and self.on_sigterm is not None:
                    self.on_sigterm()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen is None:
            self.seen, self._since = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._since > 1:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def __exit__(self, *error: object) -> None:
        self._restore()
        if self._sockets is not None:
            signal.set_wakeup_fd(self._wakeup)
            _in_use.discard(self)
            self._sockets[1].close()  # which ends the thread
            self._sockets = None


_in_use: set[Signals] = set()


def _leave_signals_to_parent() -> None:
    """Keep a signal to a forked process from being taken for one to its parent."""
    if _in_use:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_signals_to_parent)
