"""Notice that work makes no progress, and end a process that nothing else can end."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

from .errors import say

TICK = 1.0
"""Seconds between two looks at the clock."""


class StallTimer:
    """Call `act` from a thread after `limit` seconds without `reset`, and again after as many more.

    Time in which the whole process was stopped (Ctrl-Z, a suspended machine) does not count.
    """

    def __init__(self, act: Callable[[], None], limit: float = inf) -> None:
        self._act, self._limit, self._resets = act, limit, 0
        self._closed = threading.Event()
        threading.Thread(target=self._count, daemon=True, name="coterie-stalls").start()

    def reset(self, limit: float) -> None:
        """Begin to count anew, up to this limit; `inf` counts for nothing."""
        self._limit = limit
        self._resets += 1

    def close(self) -> None:
        self._closed.set()

    def _count(self) -> None:
        seconds, resets, last = 0.0, -1, time.monotonic()
        while not self._closed.wait(TICK):
            now = time.monotonic()
            seconds, last = seconds + min(now - last, 2 * TICK), now
            if resets != self._resets:
                seconds, resets = 0.0, self._resets
            elif seconds >= self._limit:
                seconds = 0.0
                self._act()


def end_now(code: int, message: str, stacks: Path) -> None:
    """End this process and its children from any thread: a sentence, the stacks of all threads, an exit code.

    Nothing is cleaned up: locks of files end with the process.
    """

    def tell() -> None:
        say(message)
        with suppress(OSError), stacks.open("w", encoding="utf-8") as file:
            faulthandler.dump_traceback(file)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    thread.join(5)  # a terminal or a disk that hangs must not keep the process
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)
