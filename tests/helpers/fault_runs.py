"""Helpers of the tests that damage runs: the command of a small run, and that a refusal changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .common import refused

OPTIONS = {"method": "Baseline", "model": "resnet8", "epochs": 2, "batch": 25, "data.limit": 5, "seed": 0}


def options(**changes: Any) -> list[str]:
    flags = [f"--{name}={value}" for name, value in {**OPTIONS, **changes}.items()]
    return ["--data=digits", "--checkpoint-every=0s", "--device=cpu", *flags]


def content(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}


def refused_unchanged(run: Path, *more: str) -> str:
    """Return the sentence with which the run's own command is refused, which must change nothing on disk."""
    before = content(run.parent)
    sentence = refused("train", *options(), "--out", run, *more)
    assert content(run.parent) == before
    return sentence
