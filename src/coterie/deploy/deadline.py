"""Give up work of a stranger's file that does not end."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from ..errors import GivenUp

LONGEST = 120.0
"""Seconds that opening a file, or an inference of up to `IMAGES` images, may take."""
IMAGES = 8

T = TypeVar("T")


def within_deadline(work: Callable[[], T], description: str, images: int = 1) -> T:
    """Return the result of `work`; raise GivenUp if it takes longer than `LONGEST`, or more for many images.

    It runs in a thread of its own, as no signal interrupts a runtime's own code. A thread that is given up goes on
    until the process ends.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True)
    thread.start()
    seconds = LONGEST * max(1.0, images / IMAGES)
    thread.join(seconds)
    if thread.is_alive():
        raise GivenUp(f"{description} took longer than {seconds:g} seconds and was given up.")
    if errors:
        raise errors[0]
    return results[0]
