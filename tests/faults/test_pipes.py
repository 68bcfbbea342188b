"""Pipes, devices and links in a run from elsewhere: no command waits for them, fills the memory or shows them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.errors import InputError
from coterie.files import LARGEST_TEXT
from coterie.runs.directory import RunDirectory
from coterie.runs.identity import run_id
from tests.helpers.common import build_once, not_on_windows, printed, refused, train

pytestmark = not_on_windows
READ_BY_REPORT = (
    ("config.yaml",),
    ("metrics.jsonl", "environment.json"),
    (
        "data.json",
        "description.json",
        "resolved.json",
        "evaluation.json",
        "costs.json",
        "protocol.json",
        "views.png",
    ),
)


def _large(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(LARGEST_TEXT + 1)  # holes, which an archive holds in a few bytes


ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "larger than it can be": _large,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "pipes", lambda out: train(out, "--method=Baseline", "--epochs=2"))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def put(file: Path, kind: str) -> None:
    file.unlink(missing_ok=True)
    ODD[kind](file)


def in_time(work: Callable[[], object]) -> None:
    """Do this in a thread, which is left behind where it waits for ever."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("names", READ_BY_REPORT)
def test_report_reads_no_file_without_an_end(copy: Path, names: tuple[str, ...], kind: str) -> None:
    for name in names:
        put(copy / name, kind)
    in_time(lambda: printed("report", copy, "-o", copy / "report.html"))
    assert (copy / "report.html").is_file()


def test_a_run_is_not_read_from_a_checkpoint_without_an_end(copy: Path) -> None:
    put(copy / "checkpoint.pt", "a pipe")
    states: list[object] = []
    in_time(lambda: states.append(RunDirectory(copy).check_state()))
    assert states[0] is not None  # the checkpoint before it
    put(copy / "environment.json", "a pipe")
    ids: list[str | None] = []
    in_time(lambda: ids.append(run_id(copy)))
    assert ids == [json.loads((copy / "metrics.jsonl").read_text().splitlines()[0])["run"]]


def test_records_that_are_larger_than_they_can_be(copy: Path) -> None:
    put(copy / "metrics.jsonl", "larger than it can be")
    with pytest.raises(InputError, match=r"metrics.jsonl cannot be read \(it has 268,435,457 bytes"):
        RunDirectory(copy).metrics()


def test_a_network_without_an_end(tmp_path: Path) -> None:
    put(tmp_path / "net.onnx", "a pipe")
    (tmp_path / "device.onnx").symlink_to(os.devnull)
    sentences: list[str] = []
    for name in ("net.onnx", "device.onnx"):
        in_time(lambda name=name: sentences.append(refused("predict", tmp_path / name, "x.png")))
    assert all(s.endswith(".onnx cannot be read: it is a pipe or a device, not a file.") for s in sentences)


def test_a_page_shows_no_file_that_a_link_names(copy: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"BEGIN PRIVATE KEY")
    (copy / "views.png").unlink()
    (copy / "views.png").symlink_to(secret)
    printed("report", copy, "-o", tmp_path / "report.html")
    assert base64.b64encode(secret.read_bytes()).decode() not in (tmp_path / "report.html").read_text()
