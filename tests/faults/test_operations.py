"""Whichever file operation of a command fails or is its last, nothing is lost, and the same command completes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from coterie.paper import study
from coterie.paper.study import STUDIES, Comparison
from tests.helpers.common import linux_only, printed
from tests.helpers.device import NAME
from tests.helpers.engine import outcome, same
from tests.helpers.experiment import TOY

from .operations import FaultKind, Faults, run

pytestmark = [linux_only, pytest.mark.skipif(NAME != "cpu", reason="its processes are forked")]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
NETWORK = "tests.helpers.engine:Plain"
SMALL = ["--model", NETWORK, "--data", "digits", "--data.limit", "5", "--batch", "50"]
REWRITTEN = ("evaluation.json", "evaluation.json.part", "costs.json", "costs.json.part")
"""Files of a run that `evaluate` writes."""
TRAIN = ["train", *SMALL, "--method", "Baseline", "--epochs", "2"]
STUDY = ["study", "--protocol", "tiny"]
COMPARE = [*SMALL, "--epochs", "1", "--methods", "Baseline,DML", "--seeds", "1", "--peers", "2"]
BEFORE, AFTER = "# Written by hand\n\n", "\nAlso written by hand.\n"
DOCUMENT = f"{BEFORE}<!-- coterie reproduce {' '.join(STUDY)} -->\nThe table of before.\n<!-- end -->{AFTER}"


def trained(folder: Path) -> Any:
    return outcome(folder / "out"), (folder / "out/student.safetensors").read_bytes()


def digests(folder: Path, *left_out: str) -> dict[str, str]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in left_out]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def reported(folder: Path) -> Any:
    """Return the page without the minute that it was written in, and the other files."""
    page = (folder / "report.html").read_text()
    return digests(folder, "report.html"), re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page)


def evaluated(folder: Path) -> Any:
    """Return the files but for measured times, which are in evaluation.json."""
    content = json.loads((folder / "run/evaluation.json").read_text())
    for scores in content["predictors"].values():
        scores.pop("latency_ms", None)
    del content["plain_latency_ms"]
    return digests(folder, "evaluation.json"), content


def runs_in(out: Path) -> dict[str, Any]:
    """Return the runs of a directory of runs to the bit."""
    runs = [config.parent for config in sorted(out.glob("*/config.yaml"))]
    return {run.name: (outcome(run), (run / "student.safetensors").read_bytes()) for run in runs}


def studied(folder: Path) -> Any:
    """Return runs, figure and document, the latter without the cost, which is a measured time."""
    document = re.sub(r"\S+ \|$", "", (folder / "results.md").read_text(), flags=re.M)
    runs = runs_in(folder / "out")
    assert len(runs) == 2 and "CutMix" in document, document
    return runs, digests(folder / "out", *REWRITTEN)["study.svg"], document


def compared(folder: Path) -> Any:
    """Return runs and plan; the page shows measured times."""
    runs = runs_in(folder / "out")
    assert len(runs) == 2
    assert (folder / "out/report.html").read_text().rstrip().endswith("</html>")
    return runs, json.loads((folder / "out/compare.json").read_text())


def document_is_whole(folder: Path) -> bool:
    content = (folder / "results.md").read_text()
    return content == DOCUMENT or (content.startswith(BEFORE) and content.endswith(f"<!-- end -->{AFTER}"))


@dataclass(frozen=True)
class Scenario:
    """A command, and what it leaves in its folder, which must be the same to the bit after any fault."""

    words: list[str]
    result: Callable[[Path], Any]
    sample: int
    """How many of its faults are tried every day."""
    intact: Callable[[Path], bool] = lambda folder: True
    """Whether nothing is lost of what the user had, right after a fault."""
    trainings_every: int | None = 3
    """Which operations of the trainings that it starts are tried, every n-th or none: `train` has them all."""


SCENARIOS = {
    "train": Scenario([*TRAIN, "--out", "out"], trained, 7),
    "export": Scenario(["export", "run", "-o", "student.safetensors"], digests, 4),
    "evaluate": Scenario(["evaluate", "run", "--costs"], evaluated, 4),
    "report": Scenario(["report", "run", "-o", "report.html"], reported, 4),
    "study": Scenario(
        ["reproduce", *STUDY, "--processes", "1", "--out", "out", "--into", "results.md"],
        studied,
        3,
        document_is_whole,
    ),
    "compare": Scenario(
        ["compare", *COMPARE, "--processes", "1", "--out", "out"], compared, 0, trainings_every=None
    ),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished run; all that commands import is imported, and costs are not measured."""
    folder = tmp_path_factory.mktemp("prepared")
    printed(*TRAIN, "--out", folder / "run")
    printed("export", folder / "run", "-o", folder / "warm.safetensors")
    printed("report", folder / "run", "-o", folder / "warm.html")
    for file in folder.glob("warm*"):
        file.unlink()
    (folder / "results.md").write_text(DOCUMENT)
    rows = tuple(row for row in study.CIFAR_ROWS if row.name in ("alone", "CutMix"))
    options = {**TOY, "epochs": 1, "batch": 50, "ema": False, "model": NETWORK, "evaluate_every": 1}
    primary = [Comparison("CutMix", "alone")]
    tiny = study.regime("tiny", "digits", options, rows, seeds=1, primary=primary, mixing={"CutMix": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STUDIES, "tiny", tiny)
        patch.setattr("coterie.deploy.latency.measure_costs", lambda *_: {"plain": {"parameters": 1, "macs": 1}})
        patch.setattr("coterie.report.command_tables.print_evaluation", lambda *_: None)
        yield folder


def kind_in_turn(at: int, operation: str) -> list[FaultKind]:
    return [KINDS[at % len(KINDS)]]


def all_kinds(at: int, operation: str) -> list[FaultKind]:
    """Return every kind, both errors in turn; of a training that is started one in turn: `train` has them all."""
    return [*KINDS[:2], KINDS[2 + at % 2]] if operation.startswith("command ") else kind_in_turn(at, operation)


def attack(
    name: str,
    prepared: Path,
    tmp_path: Path,
    points: Callable[[int], list[int]],
    kinds: Callable[[int, str], list[FaultKind]],
) -> None:
    """Try faults at points among the operations of a command; count and check."""
    scenario, scratch = SCENARIOS[name], tmp_path / "scratch"
    scratch.mkdir()

    def folder(copy: str) -> Path:
        return Path(shutil.copytree(prepared, tmp_path / copy))

    whole = folder("whole")
    undisturbed = run(scenario.words, whole, Faults(whole), scratch)
    assert undisturbed.code == 0 and undisturbed.names, undisturbed
    expected, before = scenario.result(whole), digests(prepared)
    tried, survived, problems = 0, 0, []
    for at in points(len(undisturbed.names)):
        every = scenario.trainings_every
        if undisturbed.names[at].startswith("training ") and (every is None or at % every):
            continue
        for kind in kinds(at, undisturbed.names[at]):
            place = folder(f"{at}-{kind}")
            hit = run(scenario.words, place, Faults(place, at, kind), scratch)
            again = run(scenario.words, place, Faults(place), scratch)
            tried += 1
            clean = "Traceback" not in hit.errors and "error in Coterie" not in hit.errors
            lines = re.findall("^coterie: (?!warning: )", hit.errors, re.M)
            killed = kind in ("kill", "tear") and undisturbed.names[at].startswith("command ")
            ended = hit.code == -9 if killed else hit.code in (0, 1, 2) and len(lines) <= 2
            kept = digests(place / "run", *REWRITTEN) == digests(prepared / "run", *REWRITTEN)
            kept = kept and scenario.intact(place)
            equal = again.code == 0 and same(scenario.result(place), expected)
            if clean and ended and kept and equal:
                survived += 1
                shutil.rmtree(place)
            else:
                checks = f"{hit.code} {clean=} {ended=} {kept=} {equal=} {again.code}"
                output = f"{hit.errors[-1500:]}\n{again.errors[-800:]}"
                problems.append(f"{kind} at {at} ({undisturbed.names[at]}): {checks}\n{output}")
    assert digests(prepared) == before
    operations = f"{len(undisturbed.names)} operations"
    print(f"{name}: {operations}, {tried} faults tried, {survived} survived", file=sys.stderr)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.sample])
def test_a_sample_of_faults(name: str, prepared: Path, tmp_path: Path) -> None:
    count = SCENARIOS[name].sample

    def spread(operations: int) -> list[int]:
        return sorted({round(i * (operations - 1) / (count - 1)) for i in range(count)})

    attack(name, prepared, tmp_path, spread, kind_in_turn)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault(name: str, prepared: Path, tmp_path: Path) -> None:
    attack(name, prepared, tmp_path, lambda operations: list(range(operations)), all_kinds)
