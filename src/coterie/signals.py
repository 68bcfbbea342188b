"""Record stop signals, so that a run can finish its step and save before it ends."""

from __future__ import annotations

import signal
import threading
import time
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

    def __init__(self) -> None:
        self.seen: str | None = None
        self._since = 0.0
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._handlers = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

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
