"""Errors and warnings, each one sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
import sysconfig
import textwrap
import traceback
import unicodedata
from collections.abc import Iterable
from pathlib import Path

DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that turn the direction of writing: with them, `gpj.exe` looks like `exe.jpg`."""


PACKAGE = Path(__file__).parent
WARNING = "warning: "
"""What a warning begins with; a runner looks for it in the logs of its runs."""


class InputError(ValueError):
    """Wrong input. The command line prints the message without a traceback and exits with code 2."""


class Failure(Exception):
    """A failure with valid input: a full disk, a loss that is not finite. Exit code 1."""


class GivenUp(Failure):
    """Work took too long and goes on in a thread that only the end of the process stops. Exit code 1."""


class Stopped(KeyboardInterrupt):
    """A signal stopped the run; it was saved, and the same command continues it. Exit code 75."""


def note(message: str) -> None:
    """Print what was decided for the user, once for all processes of a training."""
    if os.environ.get("RANK", "0") == "0":
        say(message)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    say(f"{WARNING}{message}")


def say(message: str) -> None:
    """Print a sentence to standard error: on a terminal wrapped between words, else in one line."""
    line = f"coterie: {printable(message)}"
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        line = textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr, flush=True)


def reason(error: BaseException) -> str:
    """Return the message of another library's exception on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or "no reason given"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out, of this machine or of a GPU; torch, whose errors they are, is not imported."""
    text = f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or bool(
        re.search("OutOfMemoryError|can't allocate memory|out of memory", text)
    )


def origin(error: BaseException) -> str:
    """Return `FILE, line N` of the user's own code that an exception passed last, or nothing if it passed none.

    The user's code is what is neither ours nor the standard library's nor an installed package's, and runs below
    code of ours.
    """
    if isinstance(error, SyntaxError) and error.filename and not _is_installed(error.filename):
        return f"{error.filename}, line {error.lineno}"
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    ours = next((i for i, (file, _) in enumerate(frames) if Path(file).is_relative_to(PACKAGE)), 0)
    own = [f"{file}, line {line}" for file, line in frames[ours:] if not _is_installed(file)]
    return own[-1] if own else ""


def _is_installed(file: str) -> bool:
    paths = sysconfig.get_paths()
    installed = (PACKAGE, *(Path(paths[kind]) for kind in ("stdlib", "platstdlib", "purelib", "platlib")))
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in installed)


def printable(text: str, lines: bool = False) -> str:
    r"""Replace control characters by their escapes, such as \x1b, so that names from anywhere can be shown.

    These are the characters that command a terminal, break a line or turn the direction of writing, and lone
    surrogates, which no file can hold. With `lines`, line feeds stay.
    """
    return "".join(
        c.encode("unicode_escape").decode() if _is_control(c) and not (lines and c == "\n") else c for c in text
    )


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in DIRECTIONS


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is nearest to a name with a typo, if one is near."""
    lower = {n.lower(): n for n in names}
    matches = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return lower[matches[0]] if matches else None


def unknown(kind: str, name: str, names: Iterable[str]) -> InputError:
    """Return the error `There is no <kind> 'name'`, with the nearest of `names` or, failing that, all of them."""
    names = list(names)
    likely = nearest(name, names)
    all_of_them = f"there is: {', '.join(names)}." if len(names) <= 40 else f"none of the {len(names)} is near it."
    hint = f"did you mean '{likely}'?" if likely else all_of_them
    return InputError(f"There is no {kind} '{name}'; {hint}")
