"""The lines of metrics.jsonl: each names its run and has a digest, so that damage is noticed and named by line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from .selection import Record

NAME = "metrics.jsonl"
RUN, DIGEST = "run", "digest"
"""Keys that a line has besides its record. Lines of earlier versions have neither."""


def encode_record(record: Record, run: str) -> bytes:
    """Return the line of a record: with the id of its run, and a digest of both."""
    content = {**record, RUN: run}
    return json.dumps({**content, DIGEST: _digest(content)}).encode() + b"\n"


def decode_record(line: str | bytes) -> tuple[Record, str | None]:
    """Return the record of a line and the id of its run, if it has one; raise a ValueError if it is damaged."""
    try:
        content: Any = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("it is no record")
        if DIGEST not in content and RUN not in content:
            return content, None
        if content.pop(DIGEST, None) != _digest(content):
            raise ValueError("it is not what was written")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content, str(content.pop(RUN, ""))


def due_epochs(epochs: int, every: int) -> list[int]:
    """Return the epochs, from 0, that have a record when so many are trained and each `every`th is evaluated."""
    return [epoch for epoch in range(epochs) if (epoch + 1) % every == 0 or epoch + 1 == epochs]


def first_damage(content: bytes, run: str | None, due: Iterable[int] | None = None) -> str:
    """Name the first line that is damaged, of another run, or not of the epoch that is `due`; else nothing."""
    expected = iter(due) if due is not None else None
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        name = f"line {number} of {NAME}"
        if not line.endswith(b"\n"):
            return f"{name} is cut off"
        try:
            record, owner = decode_record(line)
        except ValueError:
            return f"{name} is damaged"
        if owner is not None and run is not None and owner != run:
            return f"{name} is a record of another run"
        if expected is not None and record.get("epoch") != (epoch := next(expected, None)):
            missing = "of no epoch of this run" if epoch is None else f"not the record of epoch {epoch + 1}"
            return f"{name} is {missing}"
    return ""


def owner_of(content: bytes) -> str | None:
    """Return the id of the run that the first intact line names, if any does."""
    for line in content.splitlines():
        try:
            if (owner := decode_record(line)[1]) is not None:
                return owner
        except ValueError:
            continue
    return None


def digest_of(content: bytes) -> str:
    """Return the digest of all lines, which a checkpoint holds."""
    return hashlib.sha256(content).hexdigest()


def _digest(content: dict[str, Any]) -> str:
    """Return the digest of a record, whatever spaces its line has."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
