"""What the documents say of results is what the results in this repository say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import yaml
from scipy import stats

from coterie.paper.cells import table_cells
from coterie.paper.document import END
from coterie.paper.figures import draw_figure
from coterie.paper.protocols import MINI, PROTOCOLS
from coterie.paper.reproduce import Reproduction, default_out, planned_seeds
from coterie.paper.study import STUDIES
from tests.helpers.common import script
from tests.helpers.experiment import write_run
from tests.metrics.test_seeds import scipys_p

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"<!-- coterie reproduce (?P<command>.*?) -->\n(?P<text>.*?)" + END, re.DOTALL)
TRIAL = re.compile(r"<!-- trial: (\w+) -->\n(.*?)" + END, re.DOTALL)
FIGURE = re.compile(r"\(\.\./results/(?:study/)?(\w+)/(\w+)\.svg\)")
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("results.md", "study.md", "worth.md"))]
FIGURES = sorted({figure for file in DOCUMENTS for figure in FIGURE.findall(file.read_text())})
TABLES = [
    pytest.param(match["command"], match["text"], id=f"{file.name}: {match['command']}")
    for file in DOCUMENTS
    for match in PLACE.finditer(file.read_text())
    if match["text"].strip()  # before its first run a table's place is empty
]

needs_records = pytest.mark.skipif(
    not (ROOT / "results" / "recipes").is_dir() and not (ROOT / ".git").exists(),
    reason="an sdist does not hold the records of results/",
)


def test_both_documents_have_table_1() -> None:
    assert sum(str(table.values[0]).startswith("table1 ") for table in TABLES) >= 2


def test_the_study_has_a_place_for_each_of_its_tables() -> None:
    places = [match["command"] for match in PLACE.finditer((ROOT / "docs" / "study.md").read_text())]
    planned = [
        f"{experiment} --protocol {name}" for name, protocol in STUDIES.items() for experiment in protocol.settings
    ]
    assert sorted(places) == sorted(planned)


@needs_records
@pytest.mark.parametrize(("command", "text"), TABLES)
def test_a_table_in_a_document_is_that_of_the_results(command: str, text: str) -> None:
    what, *options = shlex.split(command)
    named = dict(zip(options[::2], options[1::2], strict=True))
    protocol = (PROTOCOLS | STUDIES)[named.pop("--protocol")]
    seeds = int(named.pop("--seeds", planned_seeds(what, protocol)))
    only, against, brief = named.pop("--only", ""), named.pop("--against", ""), named.pop("--brief", "") == "true"
    out = ROOT / default_out(what, protocol)
    reproduction = Reproduction(what, protocol, out, seeds, only, against=against, brief=brief)
    written = reproduction.tables().markdown()
    assert not named and text.strip() == written.strip(), f"coterie reproduce {command} --show --into"


def test_both_documents_have_their_figures() -> None:
    assert [name for _, name in FIGURES if name.startswith("fig")] == ["fig3", "fig4", "fig5"]
    assert ("cifar", "study") in FIGURES


@needs_records
@pytest.mark.parametrize(("protocol", "figure"), FIGURES)
def test_a_figure_in_a_document_is_that_of_the_results(protocol: str, figure: str, tmp_path: Path) -> None:
    """The same numbers make the same file."""
    plan = (PROTOCOLS | STUDIES)[protocol]
    shown = ROOT / default_out(figure, plan)
    out = shutil.copytree(shown, tmp_path / "copy", ignore=shutil.ignore_patterns("*.svg", "*.safetensors"))
    drawn = draw_figure(Reproduction(figure, plan, out).tables())
    assert drawn is not None
    same = drawn.read_text() == (shown / f"{figure}.svg").read_text()
    assert same, f"coterie reproduce {figure} --protocol {protocol} --show"


@needs_records
def test_results_name_no_place_of_a_machine() -> None:
    files = [file for file in (ROOT / "results").rglob("*") if file.suffix in (".yaml", ".json")]
    assert files
    for file in files:
        text = file.read_text()
        assert not re.search(r"[\s\"'=](/|~)\w", text), file
        if file.name == "environment.json":
            assert json.loads(text)["commit"], file


def test_peers_and_epochs_are_compared_at_the_same_computation(tmp_path: Path) -> None:
    beside = script("beside_table1")
    own = {cell.row: cell.jobs for cell in table_cells("table1", MINI, 2)}
    assert beside.row("PCL", {"epochs": 300}, 2).jobs == own["PCL"]  # those of Table 1 are trained once
    assert beside.row("Baseline", {"epochs": 1200}, 2).jobs == own["Baseline, 4x epochs"]
    for row, epochs, ends in (("Baseline", 300, (41.0, 42.0)), ("PCL", 75, (40.0, 40.5))):
        for job, error in zip(beside.row(row, {"epochs": epochs}, 2).jobs, ends, strict=True):
            file = write_run(tmp_path, job, {"peer1": error, "mean1": error}) / "metrics.jsonl"
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(lines[epoch] for epoch in job.evaluated))
    _, _, _, line, *_ = beside.table(beside.TRIALS["epochs"], tmp_path, 2).splitlines()
    errors = "41.50 ± 0.71 (41.50) | 40.25 ± 0.35 (40.25) | -1.25 ± 3.18 (2)"  # t = 12.7 with one degree
    assert line == f"| 300 plain epochs, 75 of PCL | {errors} |"


def errors_by_hand(method: str, **options: object) -> list[float]:
    """Errors of a row of the study's cifar by seed, from its records alone; `options` tell the row from others."""
    errors = {}
    for file in (ROOT / "results" / "study" / "cifar").glob("*/config.yaml"):
        config = yaml.safe_load(file.read_text())
        spec = config["method"]
        config |= spec.get("init_args", {}) | {"method": spec["class_path"]}
        if config["method"] == f"coterie.{method}" and all(
            config[name] == value for name, value in options.items()
        ):
            last = json.loads((file.parent / "metrics.jsonl").read_text().splitlines()[-1])
            assert config["seed"] not in errors
            errors[config["seed"]] = last["predictors"][last["deployed"]]["error"]
    return [errors[seed] for seed in range(8)]


@needs_records
def test_two_numbers_of_the_study_by_hand() -> None:
    plain = {"mix": None, "epochs": 150}
    alone = errors_by_hand("Baseline", **plain, views=1)
    whole = {"peer_teacher": "mean", "distil_ensemble": True, "input_augmentation": True, "ramp_up": 80 / 300}
    pcl = errors_by_hand("PCL", **plain, **whole)
    text = (ROOT / "docs" / "study.md").read_text()
    (row,) = re.findall(r"^\| PCL \| (.*?) \| 8 \| alone", text, re.MULTILINE)
    assert row == f"{mean(pcl):.2f} ± {stdev(pcl):.2f}"
    differences = np.subtract(pcl, alone)
    half = stats.t.ppf(0.975, 7) * stats.sem(differences)
    (cells,) = re.findall(r"^\| PCL - alone \| 8 \| (.*?) \| 8 of 8 \| (.*?) \|", text, re.MULTILINE)
    assert cells == (f"**{differences.mean():+.2f} ± {half:.2f}**", f"{scipys_p(list(differences)):.4f}")


@needs_records
def test_trials_in_the_documents_are_those_of_the_results() -> None:
    beside = script("beside_table1")
    trials = [trial for file in DOCUMENTS for trial in TRIAL.findall(file.read_text())]
    assert trials
    for name, text in trials:
        assert text.strip() == beside.table(beside.TRIALS[name], ROOT / "results" / "mini", 1).strip()


@needs_records
def test_the_recipes_page_says_what_its_runs_say() -> None:
    """The errors of docs/recipes.md, row by row, from the records."""
    text = (ROOT / "docs" / "recipes.md").read_text()
    for row, name in (("alone", "alone"), ("CutMix, probability 1", "cutmix")):
        errors = []
        for seed in range(3):
            lines = (ROOT / "results" / "recipes" / f"{name}-s{seed}" / "metrics.jsonl").read_text().splitlines()
            last = json.loads(lines[-1])
            assert (last["epoch"], last["split"]) == (299, "val")
            errors.append(last["predictors"]["peer1"]["error"])
        cells = [*(f"{error:.2f}" for error in errors), f"{mean(errors):.2f} ± {stdev(errors):.2f}"]
        assert f"| {row} | {' | '.join(cells)} |" in text
