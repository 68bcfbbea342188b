"""The names of a run's own files, which no other command may write to."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..trust import SIGNATURE

OWN_FILES = (
    "config.yaml",
    "metrics.jsonl",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "student.safetensors",
    "environment.json",
    "data.json",
    "description.json",
    "resolved.json",
    "evaluation.json",
    "costs.json",
    "views.png",
    SIGNATURE,
)


def check_output(file: Path, option: str = "`output`") -> None:
    """Refuse to write to a file of a run: a network or a page in the place of its checkpoint would end it."""
    if file.name in OWN_FILES and (file.parent / "config.yaml").is_file():
        raise InputError(f"{file} is a file of the run {file.parent}: choose another {option}.")
