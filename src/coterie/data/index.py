"""A folder per class becomes an index of images; their headers are read once and remembered."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import InputError
from .base import Indices
from .images import SUFFIXES, Unreadable, header


@dataclass
class Index:
    """The images of one split in the order of their names.

    `files` is one array of fixed-width bytes, relative to `root`: workers share its pages, which a list of
    strings, whose reference counts are written to, would not allow.
    """

    root: Path
    classes: list[str]
    files: np.ndarray
    labels: Indices
    bad: dict[str, str] = field(default_factory=dict)
    """Files that are no images, and why."""

    def path(self, image: int) -> Path:
        return self.root / os.fsdecode(bytes(self.files[image]))


def scan(root: Path, classes: list[str] | None = None) -> Index:
    """Index `root`, a folder per class. `classes`: those of the training split, where this is another."""
    try:
        found = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise InputError(f"{root} cannot be read ({(error.strerror or '').lower()}).") from None
    if not found:
        raise InputError(f"{root} has no folders: it needs a folder of images per class.")
    names = found if classes is None else classes
    if strange := set(found) - set(names):
        raise InputError(f"{root} has a class '{min(strange)}' that the training images do not have.")
    stamps = {name: stamp for c in found for name, stamp in _files(root, c).items()}
    known = _remembered(root)
    fresh = [name for name in stamps if known.get(name) != stamps[name]]
    with ThreadPoolExecutor(8) as pool:
        reasons = pool.map(lambda name: _problem(root / name), fresh)
        bad = {name: reason for name, reason in zip(fresh, reasons, strict=True) if reason}
    if len(fresh) > len(bad) or len(known) > len(stamps) - len(bad):
        _remember(root, {name: stamp for name, stamp in stamps.items() if name not in bad})
    good = [name for name in stamps if name not in bad]
    number = {name: i for i, name in enumerate(names)}
    labels = np.array([number[name.partition("/")[0]] for name in good], np.int64)
    return Index(root, names, np.array([os.fsencode(n) for n in good], np.bytes_), labels, bad)


def _files(root: Path, folder: str) -> dict[str, str]:
    """The image files at any depth below a class's folder by name, each with what changes when it changes."""
    found = {}

    def fail(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read ({(error.strerror or '').lower()}).")

    seen = {os.path.realpath(root)}
    for here, folders, names in os.walk(root / folder, onerror=fail, followlinks=True):
        if (real := os.path.realpath(here)) in seen:  # links to folders are followed, but not in a circle
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted(names):
            file = Path(here) / name
            if name[0] == "." or file.suffix.lower() not in SUFFIXES:
                continue
            try:
                status = file.stat()
                stamp = f"{status.st_size}:{status.st_mtime_ns}"
            except OSError:  # a link to nowhere: its header will say so
                stamp = "missing"
            found[file.relative_to(root).as_posix()] = stamp
    return found


def _problem(file: Path) -> str:
    """Why a file is no image; empty if it seems to be one."""
    try:
        header(file)
        return ""
    except Unreadable as error:
        return str(error)


def _cache(root: Path) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "coterie" / f"index-{hashlib.sha1(os.fsencode(root.resolve())).hexdigest()[:16]}.json"


def _remembered(root: Path) -> dict[str, str]:
    """The good images and their stamps when last seen."""
    try:
        return dict(json.loads(_cache(root).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _remember(root: Path, good: dict[str, str]) -> None:
    file = _cache(root)
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(good))
        part.replace(file)
    except OSError:
        pass  # a cache that cannot be written costs time only
