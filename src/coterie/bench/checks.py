"""A check of this machine: a function that measures, and pass, fail or skipped as its result."""

from __future__ import annotations

import getpass
import re
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import reason

Status = Literal["pass", "fail", "skipped"]


class Skipped(Exception):
    """A check that cannot be made here; the message is the reason."""


@dataclass(frozen=True)
class Outcome:
    """What a check found: numbers, the largest values they may have, and a sentence.

    A number without a bound informs. The sentence of a failure says what to do.
    """

    status: Status
    message: str
    measured: Mapping[str, float] = field(default_factory=dict)
    bound: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A check by name, the device it is of, the function that makes it, and what to do if it raises."""

    name: str
    device: str
    make: Callable[[], Outcome]
    remedy: str = "report it."


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check that was made, as the JSON file has it."""

    name: str
    device: str
    status: Status
    seconds: float
    measured: Mapping[str, float]
    bound: Mapping[str, float]
    message: str


def make_check(check: Check) -> CheckResult:
    """Make a check; whatever it raises is a failure of this check alone."""
    started = time.perf_counter()
    try:
        outcome = check.make()
    except Skipped as skipped:
        outcome = Outcome("skipped", str(skipped))
    except Exception as error:
        outcome = Outcome("fail", f"{type(error).__name__}: {reason(error).rstrip('.')}: {check.remedy}")
    seconds = round(time.perf_counter() - started, 2)
    message = without_names(outcome.message)
    return CheckResult(check.name, check.device, outcome.status, seconds, outcome.measured, outcome.bound, message)


def compare(measured: Mapping[str, float], bound: Mapping[str, float], remedy: str, about: str = "") -> Outcome:
    """Pass if every number is within its bound; NaN is not."""
    above = [name for name, largest in bound.items() if not measured[name] <= largest]
    shown = ", ".join(f"{name} {value:.1g}" for name, value in measured.items())
    if not above:
        return Outcome("pass", f"{shown}{about}", measured, bound)
    wrong = ", ".join(f"{name} {measured[name]:.2g} (at most {bound[name]:.2g})" for name in above)
    return Outcome("fail", f"{wrong}: {remedy}", measured, bound)


def without_names(text: str) -> str:
    """Replace what could name a person or a machine: home and temporary directories, user and host."""
    for folder, word in ((Path.home(), "~"), (Path(tempfile.gettempdir()), "TMP")):
        if folder != Path(folder.anchor):
            text = text.replace(str(folder), word)
    for name, word in ((_user(), "USER"), (socket.gethostname(), "HOST")):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", word, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without an entry, as in some containers
        return ""
