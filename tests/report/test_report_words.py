"""What the page says to somebody who knows none of the runs: names of data, methods in a line, chance, seeds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from coterie.config.options import from_options
from coterie.methods import available
from coterie.methods.baseline import Baseline
from coterie.metrics.seeds import Difference
from coterie.report import page, summary
from coterie.report.table import Cell, Table, difference, to_html
from coterie.runs.reader import read_run
from coterie.training.loop import train_recipe
from tests.helpers.common import printed
from tests.helpers.photographs import photographs
from tests.helpers.report import Page, last_error


class Quiet(Baseline):
    """Train the network alone, and say so in a sentence of its own. A second sentence is not shown.

    Nor is a second paragraph.
    """


class Undocumented(Baseline):
    pass


def page_of(*runs: Path, **options: Any) -> Page:
    file = runs[0].parent / "page.html"
    page.write_report(runs, file, **options)
    return Page(file.read_text())


def test_data_is_named_by_its_folder_or_file(tmp_path: Path) -> None:
    """Also where it was given as `.`, and for runs of versions that did not record the name."""
    folder = photographs(tmp_path / "holiday photos", train=2, val=2)
    table = folder / "labels.csv"
    files = sorted(folder.glob("*/*/*.jpg"))
    table.write_text("image,label\n" + "".join(f"{f.relative_to(folder)},{f.parent.name}\n" for f in files))
    for data, name in ((folder, "holiday photos"), (table, "labels.csv")):
        run = tmp_path / f"run-{name}"
        small = ["--data.size", 16, "--batch", 4, "--epochs", 1, "--model", "resnet8"]
        printed("train", "--method", "Baseline", "--data", data, *small, "--out", run)
        assert read_run(run).setting == f"resnet8 on {name}"
        shown = page_of(run)
        assert f"Baseline: resnet8 on {name}" in shown.text and "on folder" not in shown.text
        text, _ = printed("report", run, "--text")
        assert f"Results, resnet8 on {name}" in text
        (run / "description.json").unlink()  # as older versions left it
        assert read_run(run).setting == f"resnet8 on {name}"


def test_two_folders_of_the_same_shape_are_two_sets(copied: Path) -> None:
    """Runs may move their data; a set of another name is other data."""
    for run in ("PCL-0", "PCL-1"):
        description = json.loads((copied / run / "description.json").read_text())
        (copied / run / "description.json").write_text(json.dumps({**description, "data": "others"}))
    report = page.compose([copied])
    assert {g.setting for g in report.groups} == {"resnet8 on hostile", "resnet8 on others"}


def test_each_method_is_explained_by_its_first_sentence(
    trained: Path, shown: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {row[0][0]: row[1][0] for row in shown.tables["Methods"][1:]}
    assert lines == {
        "Baseline": "The network alone, trained with cross-entropy: L = CE(z, y).",
        "PCL": "Peers taught by their ensemble and by each other's mean models (Wu & Gong, AAAI 2021).",
    }
    runs = []
    for number, method in enumerate((Quiet, Undocumented)):
        options = {"model": "resnet8", "data": "digits", "epochs": 1, "batch": 300, "seed": number}
        runs.append(tmp_path / method.__name__)
        train_recipe(from_options({**options, "method": method}), runs[-1])
        config = yaml.safe_load((runs[-1] / "config.yaml").read_text())
        config["method"] = {"class_path": f"gone.{method.__name__}", "init_args": {}}  # the code is not there
        (runs[-1] / "config.yaml").write_text(yaml.safe_dump(config))
    lines = {row[0][0]: row[1][0] for row in page_of(*runs).tables["Methods"][1:]}
    assert lines == {"Quiet": "Train the network alone, and say so in a sentence of its own.", "Undocumented": "–"}
    older = tmp_path / "older"
    shutil.copytree(trained / "PCL-0", older)
    (older / "description.json").unlink()
    assert page_of(older).tables["Methods"][1][1][0].startswith("Peers taught by their ensemble")
    assert all(0 < len(available()[name].__doc__.split("\n")[0]) < 120 for name in available())  # type: ignore[union-attr]


def test_an_error_at_chance_level_is_said_beside_the_number(copied: Path) -> None:
    """Chance is computed here from the labels: the most frequent of the 1,197 test digits, two deviations."""
    from coterie.data.digits import digits

    data = digits()
    data.load()
    counts = [int((data.labels["test"] == c).sum()) for c in range(10)]
    chance = 1 - max(counts) / sum(counts)
    edge = 100 * (chance - 2 * (chance * (1 - chance) / sum(counts)) ** 0.5)

    def with_error(error: float) -> Page:
        for run in ("PCL-0", "PCL-1"):
            lines = [json.loads(line) for line in (copied / run / "metrics.jsonl").read_text().splitlines()]
            lines[-1]["predictors"]["mean1"]["error"] = error
            (copied / run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return page_of(copied / "PCL-0", copied / "PCL-1")

    guessing = with_error(edge + 0.2)
    assert guessing.column("Results", "error %")[0][0] == f"{edge + 0.2:.2f} ± 0.00 (chance level)"
    assert guessing.column("Student and ensemble", "error %")[0][0].endswith("(chance level)")
    assert f"No better than guessing: PCL; always naming the commonest class errs on {100 * chance:.2f} %." in (
        guessing.text
    )
    assert "error with PCL, which is chance level" in guessing.text
    better = with_error(edge - 0.2)
    assert better.column("Results", "error %")[0][0] == f"{edge - 0.2:.2f} ± 0.00"
    assert "guessing" not in better.text and "chance level" not in better.text


def test_one_seed_is_called_one_seed(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = page_of(copied / "Baseline-0", copied / "PCL-0")
    gap = last_error(copied / "PCL-0") - last_error(copied / "Baseline-0")
    assert "errors (one seed, which says nothing about chance)." in one.text
    assert "after the last epoch: of one seed." in one.text and "A line is one seed." in one.text
    assert one.column("Results", "against Baseline")[1][0] == f"{gap:+.2f} (1)"
    assert "points of difference, one seed" in one.text
    for words in ("over the seeds", "standard deviation", "interval", "signific", "clear"):
        assert words not in one.text.partition("<script>")[0].partition("Environment")[0], words
    alone = page_of(copied / "PCL-0")
    assert f"the network errs on {last_error(copied / 'PCL-0'):.2f} % of the test images (one seed)." in alone.text
    assert 'class="strong"' not in (copied / "page.html").read_text()


def test_no_conclusion_is_drawn_from_two_seeds(copied: Path) -> None:
    """Even where both differences are the same, so that the interval has no width."""
    for method, error in (("Baseline", 30.0), ("PCL", 20.0)):
        for seed in (0, 1, 2):
            run = copied / f"{method}-{seed}"
            if seed == 2:
                shutil.copytree(copied / f"{method}-0", run)
                config = (run / "config.yaml").read_text()
                (run / "config.yaml").write_text(re.sub(r"(?m)^seed: 0", "seed: 2", config))
            lines = (run / "metrics.jsonl").read_text()
            (run / "metrics.jsonl").write_text(re.sub(r'"error": [\d.]+', f'"error": {error}', lines))
    two = [copied / f"{method}-{seed}" for method in ("Baseline", "PCL") for seed in (0, 1)]
    assert "-10.00 ± 0.00 points, 95 % interval over 2 seeds: too few to tell it from chance" in page_of(*two).text
    assert ' strong"' not in (copied / "page.html").read_text()
    three = [*two, copied / "Baseline-2", copied / "PCL-2"]
    assert "-10.00 ± 0.00 points, 95 % interval over 3 seeds: a clear difference" in page_of(*three).text
    source = (copied / "page.html").read_text()
    assert re.findall(r'<td class="[^"]*strong"[^>]*>([^<]*)</td>', source) == ["-10.00 ± 0.00 (3)"]
    assert re.findall(r'<dd class="strong">([^<]*)</dd>', source) == ["-10.00"]


def test_bold_is_for_differences_that_are_clear_of_chance() -> None:
    assert not difference(Difference(-1.0, 1.2, 5)).strong and difference(Difference(-1.0, 0.8, 3)).strong
    assert not difference(Difference(-1.0, 0.0, 2)).strong and not difference(None).strong
    table = Table("t", ["a", "b"], [[Cell("plain"), difference(Difference(-1.0, 0.8, 3))]])
    assert to_html(table).count("strong") == 1


def test_latency_is_measured_in_turns_with_the_plain_network(trained: Path, shown: Page) -> None:
    ratios = {}
    for (name, _), (_, value) in zip(
        shown.column("Student and ensemble", "network"),
        shown.column("Student and ensemble", "latency, × plain"),
        strict=True,
    ):
        assert value is not None
        ratios[name] = value
    evaluation = json.loads((trained / "PCL-0" / "evaluation.json").read_text())
    ensemble = evaluation["predictors"]["ensemble"]["latency_ms"] / evaluation["plain_latency_ms"]
    assert ratios["ensemble"] == pytest.approx(ensemble) and ensemble > 1.3
    assert 0.7 < ratios["student (mean1)"] < 1.4  # the same network; other work may share the machine
    assert "measured in turns" in shown.text


def test_ratios_are_left_out_of_evaluations_of_older_versions(copied: Path) -> None:
    for run in (copied / "PCL-0", copied / "PCL-1"):
        evaluation = json.loads((run / "evaluation.json").read_text())
        del evaluation["plain_latency_ms"]
        (run / "evaluation.json").write_text(json.dumps(evaluation))
    column = page_of(copied / "PCL-0").column("Student and ensemble", "latency, × plain")
    assert [value for _, value in column] == [None, None]


def test_the_caveat_of_every_number_of_seeds() -> None:
    assert summary._caveat(Difference(-1.0, None, 1)) == "one seed, which says nothing about chance"
    assert "without a seed in common" in summary._caveat(Difference(-1.0, None, 0))
    assert summary._caveat(Difference(-1.0, 1.5, 4)).endswith("over 4 seeds: no clear difference")
