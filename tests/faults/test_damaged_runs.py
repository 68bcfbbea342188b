"""Every file of a run directory, damaged in every way: the same result to the bit, or a sentence."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.helpers.common import build_once, linux_only, printed
from tests.helpers.device import NAME
from tests.helpers.engine import outcome, same
from tests.helpers.wrong_calls import Ending, call

from .operations import Faults, run

pytestmark = [linux_only, pytest.mark.skipif(NAME != "cpu", reason="its processes are forked")]
SMALL = ["--model", "resnet8", "--method", "Baseline", "--data", "digits", "--data.limit", "5", "--batch", "25"]
TRAIN = ["train", *SMALL, "--epochs", "3", "--checkpoint_every", "0s"]
FILES = (
    "config.yaml",
    "metrics.jsonl",
    "data.json",
    "description.json",
    "environment.json",
    "resolved.json",
    "views.png",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "student.safetensors",
    "evaluation.json",
    ".lock",
)


def _replace_by_folder(file: Path, foreign: Path) -> None:
    file.unlink()
    file.mkdir()


def _flip(file: Path, foreign: Path) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[len(content) // 2] ^= 4
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "truncated": lambda file, foreign: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "flipped": _flip,
    "emptied": lambda file, foreign: file.write_bytes(b""),
    "garbage": lambda file, foreign: file.write_bytes(bytes(range(255, -1, -1)) * 20),
    "foreign": lambda file, foreign: shutil.copy(foreign, file),
    "folder": _replace_by_folder,
}
COMMANDS: dict[str, list[str]] = {
    "train": [*TRAIN, "--out", "part"],
    "evaluate": ["evaluate", "whole", "--json"],
    "export": ["export", "whole", "-o", "student.safetensors"],
    "report": ["report", "whole", "-o", "report.html"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that was killed before its last epoch, and a finished one with another seed."""

    def build(root: Path) -> None:
        printed(*TRAIN, "--out", root / "whole")
        printed(*TRAIN, "--seed", 1, "--out", root / "foreign")
        scratch = tmp_path_factory.mktemp("scratch")
        counted = run([*TRAIN, "--out", "counted"], root, Faults(root), scratch)
        killed = run([*TRAIN, "--out", "part"], root, Faults(root, len(counted.names) * 2 // 3), scratch)
        assert killed.code == -9 and (root / "part/checkpoint.previous.pt").is_file()
        shutil.rmtree(root / "counted")

    return build_once(tmp_path_factory, "damaged_runs", build)


def result(command: str, folder: Path, ending: Ending) -> Any:
    """Return what a command gave, as far as it must not depend on luck: no times, no provenance."""
    if command == "train":
        return outcome(folder / "part"), load_file(folder / "part/student.safetensors")
    if command == "evaluate":
        content = json.loads(ending.output)
        for scores in content["predictors"].values():
            scores.pop("latency_ms", None)
        return content
    return load_file(folder / "student.safetensors") if command == "export" else None


def attack(cases: list[tuple[str, str, str]], runs: Path, tmp_path: Path) -> None:
    """Damage a file, call a command, and check how it ends; for all cases."""
    expected, counts, problems = {}, {"same": 0, "refused": 0, "warned": 0}, []
    for command, words in COMMANDS.items():
        folder = Path(shutil.copytree(runs, tmp_path / f"expected-{command}"))
        with contextlib.chdir(folder):
            expected[command] = result(command, folder, call(words))
    for name, damage, command in cases:
        place = tmp_path / "place"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(runs, place)
        target = place / ("part" if command == "train" else "whole") / name
        if not target.exists():
            continue
        DAMAGES[damage](target, runs / "foreign" / name)
        with contextlib.chdir(place):
            ending = call(COMMANDS[command])
        lines = [line for line in ending.errors.splitlines() if line.startswith("coterie: ")]
        sentences = [line for line in lines if not line.startswith("coterie: warning: ")]
        if ending.trace or "error in Coterie" in ending.errors or "Traceback" in ending.errors:
            problems.append(f"{name} {damage}, {command}: {ending}")
        elif ending.code in (1, 2) and len(sentences) == 1:
            counts["refused"] += 1
        elif ending.code == 0 and same(result(command, place, ending), expected[command]):
            counts["same"] += 1
        elif ending.code == 0 and f"warning: {name} is damaged" in ending.errors:
            counts["warned"] += 1  # of weights of the checkpoint before it
        else:
            problems.append(f"{name} {damage}, {command}: another result, {ending.code} {ending.errors[-600:]}")
    print(f"damaged run directories: {counts}", file=sys.stderr)
    assert not problems, "\n".join(problems)


ALL = [(name, damage, command) for name in FILES for damage in DAMAGES for command in COMMANDS]


def test_a_sample_of_damages(runs: Path, tmp_path: Path) -> None:
    """Every file with every damage, each with one of the commands in turn."""
    step = len(COMMANDS)
    attack([ALL[step * i + (i + i // len(DAMAGES)) % step] for i in range(len(ALL) // step)], runs, tmp_path)


@pytest.mark.slow
def test_every_damage(runs: Path, tmp_path: Path) -> None:
    attack(ALL, runs, tmp_path)
