"""Readers of outside files return something or refuse it in a sentence, whatever the bytes are.

Valid files are changed: bytes replaced, inserted, removed. COTERIE_FUZZ_EXAMPLES sets how many of each reader.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.config.options import from_file, read_options
from coterie.data.images import Unreadable, decode_image, unreadable_reason
from coterie.data.table import table
from coterie.deploy.exported import open_exported
from coterie.errors import Failure, InputError
from coterie.files import read_json, read_yaml
from coterie.models.metadata import parse_metadata, read_metadata
from coterie.models.weights import read_weights
from coterie.report.evaluation import read_evaluation
from coterie.runs.checkpoints import Checkpoints
from coterie.runs.directory import RunDirectory
from coterie.runs.reader import read_run
from tests.helpers.common import picture, printed

DAILY = int(os.environ.get("COTERIE_FUZZ_EXAMPLES", "40"))
SLOW = 1500
REFUSALS = (InputError, Failure, Unreadable)
NASTY = [
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"[",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"\n",
    b"\xe2\x80\xae",
    b"9" * 30,
    b'"',
]
Edit = tuple[int, bytes, int]
EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), st.one_of(st.binary(max_size=4), st.sampled_from(NASTY)), st.integers(0, 40)),
    min_size=1,
    max_size=4,
)
TEXT_ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def edited(content: bytes, edits: list[Edit]) -> bytes:
    """Replace some bytes, at places that wrap around, by others."""
    for place, new, removed in edits:
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + removed :]
    return content


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, exports of it, a table and pictures."""
    root = tmp_path_factory.mktemp("samples")
    small = ["--model", "resnet8", "--method", "Baseline", "--data", "digits", "--data.limit", 5, "--batch", 25]
    printed("train", *small, "--epochs", 1, "--out", root / "run")
    printed("export", root / "run", "-o", root / "student.onnx")
    torch.save({"weight": torch.ones(3, 4), "bias": torch.ones(4)}, root / "state.pth")
    for kind in ("png", "jpg", "bmp", "gif", "webp"):
        picture(1, (16, 16)).save(root / f"image.{kind}")
    rows = [
        f"image.{kind},{label},train" for kind, label in zip(("png", "jpg", "bmp", "gif"), "abab", strict=True)
    ]
    (root / "labels.csv").write_text("\n".join(["image,label,split", *rows]) + "\n")
    return root


def pictures(file: Path) -> None:
    unreadable_reason(file)
    decode_image(file)


def load_table(file: Path) -> None:
    table(root=str(file.parent), file=file.name, workers=0).load()


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "config.yaml as options": ("run/config.yaml", read_options),
    "config.yaml as a recipe": ("run/config.yaml", from_file),
    "config.yaml as YAML": ("run/config.yaml", read_yaml),
    "config.yaml of a report": ("run/config.yaml", lambda file: read_run(file.parent)),
    "metrics.jsonl": ("run/metrics.jsonl", lambda file: RunDirectory(file.parent).metrics()),
    "metrics.jsonl of a report": ("run/metrics.jsonl", lambda file: read_run(file.parent)),
    "data.json": ("run/data.json", read_json),
    "environment.json of a report": ("run/environment.json", lambda file: read_run(file.parent)),
    "evaluation.json": ("run/evaluation.json", lambda file: read_evaluation(file.parent)),
    "checkpoint.pt": ("run/checkpoint.pt", lambda file: Checkpoints(file.parent).load()),
    "metadata of safetensors": ("run/student.safetensors", read_metadata),
    "safetensors": ("run/student.safetensors", read_weights),
    "a student": ("run/student.safetensors", open_exported),
    "a state dict": ("state.pth", read_weights),
    "ONNX": ("student.onnx", open_exported),
    "a table": ("labels.csv", load_table),
    **{f"a {kind}": (f"image.{kind}", pictures) for kind in ("png", "jpg", "bmp", "gif", "webp")},
}


def fuzz(name: str, samples: Path, examples: int) -> None:
    source, read = READERS[name]
    file = samples / source
    valid = file.read_bytes()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples == DAILY,
        suppress_health_check=list(HealthCheck),
    )
    @given(EDITS)
    def property_of_reader(edits: list[Edit]) -> None:
        file.write_bytes(edited(valid, edits))
        try:
            read(file)
        except REFUSALS as refusal:
            assert str(refusal).strip()

    try:
        property_of_reader()
    finally:
        file.write_bytes(valid)


@pytest.mark.parametrize("name", READERS)
def test_a_reader(name: str, samples: Path) -> None:
    fuzz(name, samples, DAILY)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_reader_for_minutes(name: str, samples: Path) -> None:
    fuzz(name, samples, SLOW)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["model", "classes", "input", "scores", "task", "x"]), TEXT_ARGUMENTS))
def test_metadata_of_any_values(content: dict[str, Any]) -> None:
    import json

    try:
        parse_metadata(json.dumps(content), "file")
    except InputError as refusal:
        assert str(refusal).strip()
