"""A document's tables, each between a line that names its command and an end, replaced in place."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..errors import InputError, reason
from ..files import write

END = "<!-- end -->"


def block_marker(
    experiment: str,
    protocol: str,
    only: str = "",
    seeds: int | None = None,
    against: str = "",
    brief: bool = False,
) -> str:
    """Return the command, with those options that change a table's content; `seeds` if not the planned ones."""
    words = [experiment, "--protocol", protocol]
    words += ["--only", only] if only else []
    words += ["--seeds", str(seeds)] if seeds is not None else []
    words += ["--against", against] if against else []
    words += ["--brief", "true"] if brief else []
    return f"<!-- coterie reproduce {shlex.join(words)} -->"


def write_block(file: Path, begin: str, text: str) -> None:
    """Replace what stands in a document between this line, such as a `block_marker`, and its `END`."""
    write(file, with_block(file, begin, text))


def with_block(file: Path, begin: str, text: str) -> str:
    """Return the document with this text in its place."""
    try:
        document = file.read_bytes().decode("utf-8")  # with the ends of lines that it has
    except FileNotFoundError:
        raise InputError(f"--into: there is no file {file}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--into: {file} cannot be read as text ({reason(error)}).") from None
    text = f"\n\n{text}\n"
    if "\r\n" in document:
        text = text.replace("\n", "\r\n")
    before, marker, rest = document.partition(begin)
    old, end, after = rest.partition(END)
    if not (marker and end) or "<!-- coterie" in old:  # else the end is that of the next table
        raise InputError(f"{file} has no place for this table: put '{begin}' and '{END}' where it belongs.")
    return f"{before}{begin}{text}{END}{after}"
