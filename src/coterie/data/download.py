"""Fetch a release: download with progress, resume and checksum, and take its known files out of the archive."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..errors import InputError

ATTEMPTS = 3
PATIENCE = 30
"""Seconds without a byte after which a connection is given up."""


class Unreachable(InputError):
    """The host gave nothing, or not all; what came is kept."""


def download(url: str, file: Path, md5: str) -> None:
    """`url` into `file`, going on from where an earlier try stopped; `file` appears only when its MD5 is right."""
    part = file.with_name(file.name + ".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(file.name, total=None)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                for done, total in _pieces(url, part):
                    progress.update(task, completed=done, total=total)
                break
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    raise Unreachable(f"{url} answers {error.code} {error.reason}.") from None
                if attempt == ATTEMPTS:
                    kept = part.stat().st_size if part.is_file() else 0
                    raise Unreachable(
                        f"{url} cannot be reached ({getattr(error, 'reason', None) or error})"
                        + (f"; {kept:,} bytes are kept, the same command goes on from there." if kept else ".")
                    ) from None
    if _md5(part) != md5:
        part.unlink()
        raise InputError(
            f"{url} is not the official archive (its MD5 differs): nothing was kept; try again later."
        )
    part.replace(file)


def _pieces(url: str, part: Path) -> Iterator[tuple[int, int | None]]:
    """Append what is missing to `part`; yields the bytes there are and the bytes there will be."""
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "coterie", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        return  # nothing is missing, or the file is another: the checksum tells
    with answer:
        if answer.status != 206:  # the host sends everything again
            have = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise OSError("the host sent another part than was asked for")
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with part.open("ab" if have else "wb") as out:
            while block := answer.read(1 << 18):
                out.write(block)
                have += len(block)
                yield have, total
    if total is not None and have < total:
        raise OSError("the connection ended early")


def extract(archive: Path, target: Path, wanted: dict[str, int]) -> None:
    """Take files by name (with the size each may have) out of a tar into the folder `target`.

    Nothing in the archive chooses where a byte is written: only regular files whose last path component is
    wanted are read, and they are written under that name.
    """
    target.mkdir(parents=True, exist_ok=True)
    missing = dict(wanted)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if name not in missing or not member.isreg():
                    continue
                if member.size > missing[name]:
                    raise InputError(f"{archive} has a {name} of {member.size:,} bytes: it is not the release.")
                stream = tar.extractfile(member)
                assert stream is not None
                part = target / f"{name}.part"
                with part.open("wb") as out:
                    while block := stream.read(1 << 20):
                        out.write(block)
                part.replace(target / name)
                del missing[name]
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise InputError(f"{archive} cannot be unpacked ({error}): delete it and fetch it again.") from None
    if missing:
        raise InputError(f"{archive} lacks {', '.join(missing)}: it is not the release.")


def _md5(file: Path) -> str:
    digest = hashlib.new("md5", usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
