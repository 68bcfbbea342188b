"""`coterie report --against`, `--figure`, `--curves`: another reference, one chart, curves for other programs."""

from __future__ import annotations

import csv
import re
import shutil
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from coterie.report import page
from coterie.report.content import Figure
from tests.helpers.common import printed, refused
from tests.helpers.report import Page, changed_copy, last_error, records

ROOT = Path(__file__).parents[2]


@pytest.fixture
def three(copied: Path) -> Path:
    """Baseline, PCL and DML with three seeds each; the numbers of DML and of the third seeds are made up."""
    for method in ("Baseline", "PCL"):
        shutil.copytree(copied / f"{method}-0", copied / f"{method}-2")
    for seed in (0, 1, 2):
        shutil.copytree(copied / f"PCL-{seed}", copied / f"DML-{seed}")
    draw = np.random.default_rng(0)
    for run in copied.iterdir():
        method, _, seed = run.name.partition("-")
        config = re.sub(r"(?m)^seed: \d", f"seed: {seed}", (run / "config.yaml").read_text())
        (run / "config.yaml").write_text(config.replace("coterie.PCL", f"coterie.{method}"))
        error = {"Baseline": 40.0, "PCL": 35.0, "DML": 34.0}[method] + draw.normal(0, 0.5)
        lines = (run / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(re.sub(r'"error": [\d.]+', f'"error": {error}', lines))
    return copied


def errors(root: Path, method: str) -> list[float]:
    return [last_error(root / f"{method}-{seed}") for seed in (0, 1, 2)]


@pytest.mark.parametrize("against", ["PCL", "pcl", "directory"])
def test_the_others_are_compared_with_what_is_asked_for(three: Path, tmp_path: Path, against: str) -> None:
    file = tmp_path / "r.html"
    printed("report", three, "--against", three / "PCL-1" if against == "directory" else against, "-o", file)
    shown = Page(file.read_text())
    names = [name for name, _ in shown.column("Results", "method")]
    gaps = dict(zip(names, shown.column("Results", "against PCL"), strict=True))
    won = dict(zip(names, shown.column("Results", "seeds won"), strict=True))
    assert set(names) == {"Baseline", "PCL", "DML"} and gaps["PCL"] == ("–", None) and won["PCL"] == ("–", None)
    ours = errors(three, "PCL")
    for method in ("Baseline", "DML"):
        theirs = errors(three, method)
        interval = stats.ttest_rel(theirs, ours).confidence_interval(0.95)
        middle, half = (interval.high + interval.low) / 2, (interval.high - interval.low) / 2
        assert gaps[method][0] == f"{middle:+.2f} ± {half:.2f} (3)"
        assert won[method][0] == f"{sum(a < b for a, b in zip(theirs, ours, strict=True))} of 3"
    assert "trained with DML" in shown.text and "with PCL on" in shown.text
    assert shown.column("Cost of training", "× PCL")[names.index("PCL")][1] == pytest.approx(1)
    text, _ = printed("report", three, "--against", "PCL", "--text")
    assert gaps["DML"][0] in text and "against PCL" in text


def test_without_it_the_reference_is_the_baseline(three: Path) -> None:
    text, _ = printed("report", three, "--format", "csv")
    head = text.splitlines()[0].split(",")
    assert "against Baseline" in head and "seeds won" in head


def test_a_reference_that_is_not_there_or_not_one_is_refused(three: Path) -> None:
    assert "There is no method or run 'ONE'; there is: Baseline, DML, PCL." in refused(
        "report", three, "--against", "ONE"
    )
    assert "is 3 recipes of resnet8 on hostile" in refused("report", three, "--against", three)
    changed_copy(three, "PCL-0", "again", ("peers: 3", "peers: 4"))
    said = refused("report", three, "--against", "PCL, peers 5")
    assert "There is no method or run" in said
    text, _ = printed("report", three, "--against", "PCL, peers 4", "--text")  # by its label
    assert "against PCL, peers 4" in text


def test_a_chart_of_the_page_becomes_an_svg_file(trained: Path, shown: Page, tmp_path: Path) -> None:
    file = tmp_path / "x.svg"
    out, _ = printed("report", trained, "--figure", "diversity", "-o", file)
    assert out == f"{file}: the chart 'diversity' of the page.\n"
    tree = ElementTree.parse(file)
    svg = "{http://www.w3.org/2000/svg}"
    lines = {p.get("data-name"): p for p in tree.iter(f"{svg}path") if p.get("data-name")}
    title = "Diversity of peers, resnet8 on hostile"
    assert set(lines) == set(shown.lines[title])
    for name, (x, y) in shown.lines[title].items():
        assert lines[name].get("data-y") == " ".join(y) and lines[name].get("data-x") == " ".join(
            f"{v:g}" for v in x
        )
    words = [text.text for text in tree.iter(f"{svg}text")]
    assert title in words and "PCL, mean peers" in words  # a heading and a legend
    colours = (file.read_text().partition("<style>")[2]).partition("</style>")[0]
    for path in lines.values():
        assert f".line.{path.get('class').split()[1]}," in colours  # type: ignore[union-attr]


def test_every_chart_of_the_page_has_a_name(trained: Path, tmp_path: Path) -> None:
    report = page.compose([trained])
    figures = [block for section in report.sections for block in section.blocks if isinstance(block, Figure)]
    names = list(dict.fromkeys(figure.name for figure in figures))
    assert {"error", "predictors", "loss-terms", "learning-rate", "ramp-up"} < set(names)
    assert {"diversity", "agreement", "ensemble", "computation", "time", "reliability"} < set(names)
    said = refused("report", trained, "--figure", "accuracy", "-o", tmp_path / "a.svg")
    assert said == f"There is no chart 'accuracy'; there is: {', '.join(names)}."
    for name in names:
        printed("report", trained, "--figure", name, "-o", tmp_path / f"{name}.svg")
        tree = ElementTree.parse(tmp_path / f"{name}.svg")
        charts = [e for e in tree.iter("{http://www.w3.org/2000/svg}svg") if e.get("class") == "chart"]
        assert len(charts) == sum(figure.name == name for figure in figures)
        places = sorted((float(e.get("y", 0)), float(e.get("height", 0))) for e in charts)
        assert all(a + height < b for (a, height), (b, _) in pairwise(places))
        assert places[-1][0] + places[-1][1] <= float(tree.getroot().get("height", 0))
    assert "name a file that ends in .svg, not x.png" in refused(
        "report", trained, "--figure", "error", "-o", "x.png"
    )
    assert not Path("x.png").exists()


def test_the_curves_are_a_csv_that_pandas_reads(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    file = tmp_path / "curves.csv"
    printed("report", trained, "--curves", file)
    frame = pandas.read_csv(file)
    assert list(frame.columns[:6]) == ["run", "setting", "method", "seed", "epoch", "predictor"]
    for run in sorted(trained.iterdir()):
        for record in records(run):
            rows = frame[(frame.run == str(run)) & (frame.epoch == record["epoch"] + 1)].set_index("predictor")
            assert set(rows.index) == set(record["predictors"])
            assert set(rows.method) == {run.name.partition("-")[0]} and set(rows.seed) == {int(run.name[-1])}
            for predictor, scores in record["predictors"].items():
                for name, value in scores.items():
                    assert rows.loc[predictor, name] == value, name
                assert rows.loc[predictor, "terms.loss"] == record["terms"]["loss"]
                assert rows.loc[predictor, "schedule.lr"] == record["lr"]
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"pandas": pandas}
    exec(code, names)
    last = [last_error(trained / f"PCL-{seed}") for seed in (0, 1)]
    assert names["errors"].PCL[3] == pytest.approx(np.mean(last))


def test_csv_of_runs_with_different_columns_and_odd_names(copied: Path, tmp_path: Path) -> None:
    """A method without diversity leaves the column empty; a comma in a directory's name stays one field."""
    (copied / "PCL-0").rename(copied / 'a, "b"')
    printed("report", copied, "--curves", tmp_path / "c.csv")
    with (tmp_path / "c.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} >= {str(copied / 'a, "b"')}
    assert all((row["diversity.peer"] == "") == (row["method"] == "Baseline") for row in rows)


def test_options_that_contradict_each_other_are_refused(trained: Path, tmp_path: Path) -> None:
    assert "exclude each other" in refused("report", trained, "--figure", "error", "--curves", "c.csv")
    assert "exclude each other" in refused("report", trained, "--figure", "error", "--text")
    assert "leave out --output" in refused("report", trained, "--curves", "c.csv", "-o", "d.csv")
    (tmp_path / "file").write_text("")
    said = refused("report", trained, "--curves", tmp_path / "file" / "c.csv")
    assert "cannot be written" in said and "choose another --curves" in said
