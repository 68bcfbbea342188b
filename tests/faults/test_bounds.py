"""Files and options that ask for too much are refused in little time and memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
import yaml

from coterie.config.options import from_file, from_options
from coterie.data.folder import folder
from coterie.errors import InputError
from coterie.files import LARGEST_YAML, read_yaml
from coterie.runs.reader import read_run

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
HOSTILE = {
    "an alias bomb": BOMB,
    "deep nesting": "model: " + "[" * 100_000,
    "deep mappings": "".join(f"{' ' * n}a:\n" for n in range(300)),
    "an alias bomb in text": yaml.safe_dump({"class_weights": "{" + ", ".join(BOMB.splitlines()) + "}"}),
    "a bomb in text in text": yaml.safe_dump({"a": yaml.safe_dump({"b": BOMB})}),
    "a number without end": "epochs: 0x" + "f" * 9000,
    "a circle": "model: &a [*a]",
    "an alias of nothing": "model: *b",
    "no text": "\x00\x01",
    "too long": "model: " + "x" * LARGEST_YAML,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_config_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.yaml").write_text(HOSTILE[kind])
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(InputError, match=r"config.yaml (cannot be read \(|has 1,000,007 bytes)"):
        from_file(tmp_path / "config.yaml")
    result = read_run(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "config.yaml cannot be read" in result.problems and not result.config
    assert time.process_time() - started < 10 and peak < 50e6


def test_ordinary_aliases_are_read(tmp_path: Path) -> None:
    shared = [0.5, 0.75]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"a": shared, "b": shared}))
    assert "&" in (tmp_path / "config.yaml").read_text()
    assert read_yaml(tmp_path / "config.yaml") == {"a": shared, "b": shared}


@pytest.mark.parametrize("epochs", [10**23, 10**8])
def test_epochs_that_no_one_can_wait_for(epochs: int) -> None:
    with pytest.raises(InputError, match="`epochs` must be at most 10,000,000, not 1"):
        from_options({"epochs": epochs})


def test_workers_that_no_machine_has() -> None:
    for workers in (1000, -1):
        with pytest.raises(InputError, match=f"`workers` must be from 0 to 256, not {workers}"):
            folder(workers=workers)


def test_views_that_no_memory_holds(tmp_path: Path) -> None:
    options = {"method": {"class_path": "coterie.Baseline", "init_args": {"views": 10**9}}}
    with pytest.raises(InputError, match="Baseline needs 1 to 256 views of each image, not 1,000,000,000"):
        from_options(options).build()
