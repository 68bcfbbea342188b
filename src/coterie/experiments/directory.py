"""A directory of runs: a note in it says what the runs are for, so that nothing else is written into."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import replace


def check_directory(out: Path, note: str) -> None:
    """Refuse a file, and a directory that holds something but no note of this name."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: --out must name a directory.")
    # Looked at first: another process may be making this directory, and writes the note before all else.
    used = out.is_dir() and any(not path.name.startswith(note) for path in out.iterdir())
    if used and not (out / note).is_file():
        raise InputError(f"{out} is not empty and holds no results: choose another --out.")


def write_note(out: Path, note: str, content: Any) -> None:
    """Make the directory, and write or replace its note; several processes may do so at the same time."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        part = out / f"{note}.{uuid.uuid4().hex}.part"
        part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        replace(part, out / note)
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}): choose another --out.") from None
