"""Write files in one step, so that they hold their old or their new content; read JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import Failure, InputError, reason


@contextmanager
def atomic_path(file: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to, which then replaces `file` in one step; the old file moves to `keep`."""
    part = file.with_name(file.name + ".part")
    try:
        yield part
        _sync(part)
        if keep is not None and file.exists():
            file.replace(keep)
        part.replace(file)
        _sync(file.parent)
    except OSError as error:
        raise Failure(
            f"{file} could not be written ({error.strerror or error}); what was there before is intact: "
            "mend that, and the same command continues."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()


def write(file: Path, content: str | bytes) -> None:
    """Replace a file in one step."""
    with atomic_path(file) as part:
        # A file name in the content may hold bytes that are not valid text: each becomes a question mark.
        part.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)


def read_json(file: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file, or raise an InputError."""
    try:
        content = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} cannot be read ({reason(error)}): restore or remove it.") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} is not a table of names and values: restore or remove it.")
    return content


def _sync(path: Path) -> None:
    """Wait until a file, or a directory's list of files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
