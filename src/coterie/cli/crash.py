"""One sentence for an exception that no command expects: whose code raised it, and what it said."""

from __future__ import annotations

import errno
import sys
import traceback

from ..errors import is_out_of_memory, origin, printable, reason

TELLS = "`--traceback` shows the way to it."


def describe_exception(error: Exception) -> tuple[str, int]:
    """Return the sentence of an exception and the exit code: 2 for a name that no file can have, else 1."""
    what = f"{type(error).__name__}: {reason(error)}"
    place = origin(error)
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"The name of a file is too long: {_shortened(error.filename)}", 2
    if is_out_of_memory(error):
        return f"Out of memory ({reason(error)}): {TELLS}", 1
    if place:
        return f"Your own code failed ({place}): {what}. {TELLS}", 1
    if isinstance(error, OSError):
        file = f"{_shortened(error.filename)}: " if error.filename else ""
        return f"{file}{error.strerror or reason(error)}. {TELLS}", 1
    return f"This is an error in Coterie, please report it: {what}. {TELLS}", 1


def print_traceback(error: BaseException) -> None:
    """Print the traceback of an exception with those of its causes, without control characters."""
    print(printable("".join(traceback.format_exception(error)), lines=True), end="", file=sys.stderr, flush=True)


def _shortened(name: object) -> str:
    text = str(name)
    return text if len(text) <= 100 else f"{text[:50]}...{text[-20:]}"
