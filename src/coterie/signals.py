"""Signals that ask a run to stop: it finishes its step, saves, and ends."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Signals:
    """While this lasts the first such signal is only noted; a second one acts as it always does.

    What comes within a second of the first is still the first: `timeout` sends it to a process and to its group.
    """

    def __init__(self) -> None:
        self.seen: str | None = None
        self._since = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            self._before = {number: signal.signal(number, self._note) for number in ASKED}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen is None:
            self.seen, self._since = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._since > 1:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
