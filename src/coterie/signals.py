"""Signals that ask a run to stop: it finishes its step, saves, and ends."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Signals:
    """While this lasts the first such signal is only noted; a second one acts as it always does."""

    def __init__(self) -> None:
        self.seen: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            self._before = {number: signal.signal(number, self._note) for number in ASKED}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
