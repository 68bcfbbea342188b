"""A training of many short epochs keeps no memory, descriptor, thread or shared memory from epoch to epoch."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.common import linux_only
from tests.helpers.engine import add_plain, recipe

WARM_UP = 20
"""Epochs after which a training has all that it keeps."""


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


def usage() -> dict[str, float]:
    """Return the resident memory in MB, and counts of descriptors, threads and segments of shared memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * 4096 / 1e6,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "segments": len(list(Path("/dev/shm").iterdir())),
    }


def soak(epochs: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[dict[str, float]] = []
    log = RunDirectory.log

    def sampling(self: RunDirectory, record: dict[str, object]) -> None:
        log(self, record)
        if record["epoch"] in (WARM_UP, epochs - 1):
            gc.collect()
            samples.append(usage())

    monkeypatch.setattr(RunDirectory, "log", sampling)
    train_recipe(recipe(epochs=epochs, method="Baseline", batch=50, checkpoint_every="1h"), out)
    first, last = samples
    print(f"{epochs} epochs: {first} after {WARM_UP}, {last} at the end", file=sys.stderr)
    assert last["memory"] < 1.05 * first["memory"]
    for name in ("descriptors", "threads", "segments"):
        assert last[name] == first[name], name
    assert len(RunDirectory(out).metrics()) == epochs


@linux_only
def test_60_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak(60, tmp_path / "run", monkeypatch)


@linux_only
@pytest.mark.slow
def test_2000_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak(2000, tmp_path / "run", monkeypatch)
