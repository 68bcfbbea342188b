"""Files that hold their old content or their new one, never something between, whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import Failure


@contextmanager
def atomic_path(file: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to, which replaces `file` in one step; the old content moves to `keep`."""
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
        # The name of a stranger's file can hold bytes that are no text: each becomes a question mark.
        part.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)


def _sync(path: Path) -> None:
    """Wait until a file, or a directory's list of files, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
