"""Write files in one step, so that they hold their old or their new content; lock files; read JSON and YAML."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import Failure, InputError, reason

if TYPE_CHECKING:
    from filelock import FileLock

LARGEST_YAML, LARGEST_CONTENT, DEEPEST = 1_000_000, 100_000, 50
"""Bytes of a YAML file, its values with every alias written out, and the depth of their nesting."""
LONGEST_SCALAR = 4_000
"""Characters of a number, or of a name without quotes; Python prints no number of more digits."""
NESTS = frozenset("[{:?-")
"""Characters of which every mapping and list in YAML has one."""
LARGEST_TEXT = 2**28
"""Bytes of any other text file of a run; the records of 100,000 epochs have fewer."""
REMEDY = ": put a copy in its place, or remove it, and the `coterie train` of its run writes it anew."
TORCH_WRITER = re.compile("PytorchStreamWriter|inline_container")
"""In the errors of torch's writer of checkpoints."""
PATIENCE = 2.0
"""Seconds to wait for other programs to close a file that is to be replaced."""


@contextmanager
def atomic_path(file: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yield a path to write to, which then replaces `file` in one step; the old file moves to `keep`."""
    _check_replaceable(file)
    part = file.with_name(file.name + ".part")
    try:
        part.unlink(missing_ok=True)  # it may be a link in a folder from elsewhere: nothing is written through it
        yield part
        _sync(part)
        if keep is not None and file.exists():
            replace(file, keep)
        replace(part, file)
        _sync_directory(file.parent)
    except (OSError, RuntimeError) as error:
        cause = _write_error(error)
        if cause is None:
            raise
        raise Failure(
            f"{file} could not be written ({cause}); what was there before is intact: "
            "mend that, and the same command continues."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _check_replaceable(file: Path) -> None:
    """Refuse /dev/null and its like, which whoever may would replace by a file, and pipes."""
    with suppress(OSError):  # there is none yet, or none can be written
        try:
            check_regular(file)
        except ValueError as error:
            raise InputError(f"{file} cannot be written: {error}.") from None
    if file.absolute().parent == Path("/dev"):
        raise InputError(f"{file} cannot be written: files in /dev are devices.")


def _write_error(error: BaseException) -> str | None:
    """Return why a file could not be written, or None if an exception has another reason.

    torch's writer of checkpoints turns the error of a full disk into a RuntimeError of its own.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError):
            return link.strerror or str(link)
        link = link.__cause__ or link.__context__
    return reason(error) if isinstance(error, RuntimeError) and TORCH_WRITER.search(str(error)) else None


def write(file: Path, content: str | bytes) -> None:
    """Replace a file in one step."""
    with atomic_path(file) as part:
        # A file name in the content may hold bytes that are not valid text: each becomes a question mark.
        part.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)


def given_path(value: object, option: str) -> Path:
    """Return the path that a Python call was given as an option, or raise an InputError."""
    try:
        path = Path(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"`{option}` must be a path, not {value!r}.") from None
    if "\0" in str(path):
        raise InputError(f"`{option}` has a null character, which no path has.")
    return path


def check_regular(file: Path) -> os.stat_result:
    """Return what is known of a file; raise a ValueError for a pipe, which has no end, and for a device."""
    status = file.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise ValueError("it is a pipe or a device, not a file")
    return status


def read_bytes(file: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file that may come from anywhere; raise a ValueError where it is too large."""
    size = check_regular(file).st_size
    if size > largest:
        raise ValueError(f"it has {size:,} bytes, more than the {largest:,} that such a file may have")
    return file.read_bytes()


def load_json(file: Path) -> Any:
    """Return the content of a JSON file that may come from anywhere; raise a ValueError where it holds none."""
    try:
        return json.loads(read_bytes(file).decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(file: Path) -> dict[str, Any]:
    """Return the mapping in a JSON file, or raise an InputError."""
    try:
        content = load_json(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({reason(error)}){REMEDY}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file} is not a table of names and values{REMEDY}")
    return content


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file, or raise an InputError; a hostile file costs little time and memory."""
    import yaml  # here: help and typos answer without it

    try:
        text = read_bytes(file, LARGEST_YAML).decode()
        _check_yaml(text)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({reason(error)}).") from None


def yaml_content(text: str) -> str | None:
    """Return the plain value that YAML reads in a text; None of a mapping, a list, or a value with a tag."""
    import yaml

    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent) and event.tag is None:
                return str(event.value)
            if isinstance(event, yaml.NodeEvent):
                return None
    except (yaml.YAMLError, ValueError, RecursionError):
        pass
    return text.strip()


def _check_yaml(text: str) -> None:
    """Refuse what is nested too deeply, or grows too large where aliases repeat it, before it is built.

    The parser of options reads text in it as YAML once more: it is checked alike.
    """
    import yaml

    sizes: dict[str | None, int] = {}
    counts, anchors = [0], list[str | None]()  # of the collections that are open
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(0)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            sizes[anchors.pop()] = size = counts.pop() + 1
            counts[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"*{event.anchor} stands for nothing that is complete")
            counts[-1] += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
            counts[-1] += 1
            if len(event.value) > LONGEST_SCALAR and event.style is None:
                raise ValueError(f"it has a number or name of {len(event.value):,} characters")
            if set(event.value) & NESTS and yaml_content(event.value) is None:
                with suppress(yaml.YAMLError):
                    _check_yaml(event.value)
        if len(counts) > DEEPEST or counts[-1] > LARGEST_CONTENT:
            raise ValueError("it is nested too deeply or repeats itself too often")


def replace(source: Path, target: Path) -> None:
    """Rename a file, over `target` if that exists.

    Windows refuses while another program has one of them open, as a reader of metrics or a virus scanner has for a
    moment: try again for a while.
    """
    deadline, pause = time.monotonic() + PATIENCE, 0.01
    while True:
        try:
            source.replace(target)
            return
        except PermissionError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause *= 2


def lock_file(file: Path) -> FileLock:
    """Make a lock that ends with its process, however that ends, and that no fork of the process keeps.

    `acquire` raises `filelock.Timeout` at once if another process holds it.
    """
    from filelock import FileLock

    # Where a file system has no locks, a file that marks a lock would outlive a killed process: an error instead.
    return FileLock(file, timeout=0, thread_local=False, fallback_to_soft=False)


def _sync(file: Path) -> None:
    """Wait until a file is on the disk."""
    _sync_descriptor(os.open(file, os.O_RDWR))  # Windows syncs only what is open for writing


def _sync_directory(directory: Path) -> None:
    """Wait until a directory's list of files is on the disk."""
    with suppress(PermissionError):  # Windows opens no directories
        _sync_descriptor(os.open(directory, os.O_RDONLY))


def _sync_descriptor(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
