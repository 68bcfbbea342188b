"""Why a command ended early, in one sentence that says what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Bad input. The command line prints the message alone and exits with code 2."""


class Failure(Exception):
    """What went wrong though the input was good: a full disk, a loss that is no number. Exit code 1."""


class Stopped(Exception):
    """A signal asked the run to stop; it was saved, and the same command continues it. Exit code 75."""


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """`There is no <kind> 'name'`, with the nearest known name or, failing that, all of them."""
    names = list(known)
    lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    hint = f"did you mean '{lower[near[0]]}'?" if near else f"there is: {', '.join(names)}."
    return InputError(f"There is no {kind} '{name}'; {hint}")
