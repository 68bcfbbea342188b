"""The report: every number on the page is the one in metrics.jsonl, whatever state the runs are in."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.cli import _run, main
from coterie.costs import macs, training_macs
from coterie.data.digits import digits
from coterie.errors import InputError
from coterie.methods import available
from coterie.peers import PeerNet
from coterie.recipe import from_options
from coterie.report import examine, page, runs
from coterie.report.charts import Line, brief, lines

from .conftest import TinyNet, coterie, refused

EVIL = "<script>alert(1)</script>"
OPTIONS = {"model": "resnet8", "epochs": 3, "batch": 50}


class hostile(digits):
    """Digits whose first class is called like an attack."""

    def load(self) -> None:
        super().load()
        self.classes = [EVIL, *self.classes[1:]]


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Page(HTMLParser):
    """What a browser would find: tables by caption, lines by figure title and name, and all text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, float | None]]]] = {}
        self.lines: dict[str, dict[str, tuple[list[float], list[str]]]] = {}
        self.tags: list[str] = []
        self.tiles: list[str] = []
        self.text, self.caption, self.figure, self.inside = "", "", "", ""
        self.value: str | None = None
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.inside = tag
        if tag == "caption":
            self.caption = ""
        if tag == "h3":
            self.figure = ""
        if tag == "tr":
            self.tables.setdefault(self.caption, []).append([])
        if tag in ("td", "th"):
            self.value = found.get("data-value")
            self.tables[self.caption][-1].append(("", None if self.value is None else float(self.value)))
        if tag == "path" and "data-name" in found:
            x, y = (str(found[key]).split(" ") for key in ("data-x", "data-y"))
            self.lines.setdefault(self.figure, {})[str(found["data-name"])] = ([float(v) for v in x], y)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside == "dd":
            self.tiles.append(data)
        if self.inside == "caption":
            self.caption += data
        if self.inside == "h3":
            self.figure += data
        if self.inside in ("td", "button") and self.tables:
            row = self.tables[self.caption][-1]
            row[-1] = (row[-1][0] + data, row[-1][1])

    def column(self, table: str, name: str) -> list[tuple[str, float | None]]:
        head, *rows = next(rows for caption, rows in self.tables.items() if caption.split(",")[0] == table)
        i = [cell for cell, _ in head].index(name)
        return [row[i] for row in rows]


@pytest.fixture(scope="module")
def shown(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    file = tmp_path_factory.mktemp("page") / "report.html"
    page.write([trained], file, f"Title {EVIL}")
    return Page(file.read_text())


def over_seeds(trained: Path, method: str, value: Any) -> np.ndarray[Any, Any]:
    return np.array([[value(r) for r in records(trained / f"{method}-{seed}")] for seed in (0, 1)])


def test_results_table_is_what_the_metrics_say(trained: Path, shown: Page) -> None:
    metrics = {"error %": "error", "top-5 error %": "top5_error", "NLL": "nll", "calibration error": "ece"}
    for column, name in metrics.items():
        digits_ = {"nll": 3, "ece": 4}.get(name, 2)
        for (text, value), method in zip(shown.column("Results", column), ("Baseline", "PCL"), strict=True):
            last = over_seeds(trained, method, lambda r, n=name: r["predictors"][r["deployed"]][n])[:, -1]
            assert value == pytest.approx(last.mean(), rel=1e-12)
            assert text == f"{last.mean():.{digits_}f} ± {last.std(ddof=1):.{digits_}f}"
    errors = [value for _, value in shown.column("Results", "error %")]
    assert shown.column("Results", "against Baseline")[1][1] == pytest.approx(errors[1] - errors[0])
    ensemble = over_seeds(trained, "PCL", lambda r: r["predictors"]["ensemble"]["error"])[:, -1].mean()
    assert shown.column("Results", "ensemble error %")[1][1] == pytest.approx(ensemble)


def test_summary_and_calibration_are_what_the_metrics_say(trained: Path, shown: Page) -> None:
    ends = [
        over_seeds(trained, method, lambda r: r["predictors"][r["deployed"]]["error"])[:, -1]
        for method in ("Baseline", "PCL")
    ]
    for end in ends:
        assert f"{end.mean():.2f} ± {end.std(ddof=1):.2f} %" in shown.text
        assert f"{end.mean():.2f} %" in shown.tiles
    gain = ends[0].mean() - ends[1].mean()
    assert f"{-gain:+.2f}" in shown.tiles and "4.0 ×" in shown.tiles and "1.0 ×" in shown.tiles
    change = 100 * abs(gain) / ends[0].mean()
    assert f"{change:.0f} % {'fewer' if gain > 0 else 'more'} errors" in shown.text
    assert ("no clear difference" in shown.text) == (abs(gain) < max(end.std(ddof=1) for end in ends))
    for method in ("Baseline", "PCL"):
        last = records(trained / f"{method}-0")[-1]
        ece = last["predictors"][last["deployed"]]["ece"]
        assert f"Expected calibration error {ece:.4f}; seed 0, {last['deployed']}." in shown.text


@pytest.mark.parametrize("log", [False, True])
def test_lines_are_drawn_where_their_values_are(log: bool) -> None:
    """The scale is read off the axis labels, as a reader does, and the points are measured with it."""
    y = [80.0, 31.0, 12.5, 6.0]
    drawn = lines("t", [Line("a", [1, 2, 3, 4], y, [v / 2 for v in y], [v * 1.1 for v in y])], "epoch", "e", log)
    labels = re.findall(r'<text x="65" y="([\d.]+)" text-anchor="end">([\d.]+)</text>', drawn)
    scale = math.log if log else float
    (p0, v0), (p1, v1) = ((float(p) - 4.5, scale(float(v))) for p, v in (labels[1], labels[-1]))
    ((band, line),) = re.findall(r'class="band[^>]* d="([^"]*)Z".*class="line[^>]* d="([^"]*)"', drawn)
    places = [float(point.split()[1]) for point in line.replace("M", "L").split("L")[1:]]
    assert places == pytest.approx([p0 + (scale(v) - v0) * (p1 - p0) / (v1 - v0) for v in y], abs=0.15)
    edges = [float(point.split()[1]) for point in band.replace("M", "L").split("L")[1:]]
    values = [v * 1.1 for v in y] + [v / 2 for v in reversed(y)]
    assert edges == pytest.approx([p0 + (scale(v) - v0) * (p1 - p0) / (v1 - v0) for v in values], abs=0.15)


def test_every_curve_is_what_the_metrics_say(trained: Path, shown: Page) -> None:
    where = "resnet8 on hostile"
    expected: list[tuple[str, str, str, Any]] = [
        (f"Error of the deployed network, {where}", m, m, lambda r: r["predictors"][r["deployed"]]["error"])
        for m in ("Baseline", "PCL")
    ]
    for predictor, label in (("peer1", "raw peer 1"), ("mean1", "mean peer 1"), ("ensemble", "ensemble")):
        title = f"Raw, mean and ensemble predictors: PCL, {where}"
        expected.append((title, label, "PCL", lambda r, p=predictor: r["predictors"][p]["error"]))
    for term in ("loss", "ce_peers", "ce_ensemble", "distil_ensemble", "distil_mean"):
        expected.append((f"Loss terms: PCL, {where}", term, "PCL", lambda r, t=term: r["terms"][t]))
    for kind, label in (("peer", "PCL, raw peers"), ("mean", "PCL, mean peers")):
        expected.append((f"Diversity of peers, {where}", label, "PCL", lambda r, k=kind: r["diversity"][k]))
        expected.append((f"Agreement of peers, {where}", label, "PCL", lambda r, k=kind: 100 * r["agreement"][k]))
    expected.append((f"Learning rate, {where}", "Baseline", "Baseline", lambda r: r["lr"]))
    expected.append(
        (f"Accuracy of the ensemble, {where}", "PCL", "PCL", lambda r: 100 - r["predictors"]["ensemble"]["error"])
    )
    length = 80 / 300 * 3
    expected.append(
        (
            f"Distillation weight (ramp-up, Eq. 6), {where}",
            "PCL",
            "PCL",
            lambda r: math.exp(-5 * (1 - min(r["epoch"] / length, 1)) ** 2),
        )
    )
    for figure, line, method, value in expected:
        x, y = shown.lines[figure][line]
        assert x == [1, 2, 3], figure
        means = over_seeds(trained, method, value).mean(0)
        assert [float(v) for v in y] == pytest.approx(means, rel=6e-4), (figure, line)  # four digits are shown


def test_cost_is_four_fold_and_its_curves_follow(trained: Path, shown: Page) -> None:
    made = from_options({**OPTIONS, "data": {"class_path": "digits"}, "method": "Baseline"}).build()
    one = macs(made.net.peers[0], (1, 8, 8))
    classifier = 3 * 64 * 10  # the ensemble's: three features of 64 to ten classes
    steps = [3 * one, 3 * 3 * one + 3 * one + 3 * classifier]
    assert [v for _, v in shown.column("Cost of training", "MACs per image and step")] == steps
    assert shown.column("Cost of training", "× Baseline")[1][0] == "4.00"
    totals = [v for _, v in shown.column("Cost of training", "MACs in all")]
    assert totals == [step * 100 * 3 for step in steps]
    x, _ = shown.lines["Error over computation, resnet8 on hostile"]["PCL"]
    assert x == pytest.approx([steps[1] * 100 * e for e in (1, 2, 3)], rel=1e-5)
    clock = over_seeds(trained, "PCL", lambda r: r["time"]["train"]).cumsum(1).mean(0)
    x, _ = shown.lines["Error over time, resnet8 on hostile"]["PCL"]
    assert x == pytest.approx(clock, rel=1e-5)
    assert shown.column("Cost of training", "seconds")[1][1] == pytest.approx(clock[-1])


@pytest.mark.parametrize("views, trunk_runs", [(3, 3), (1, 1)])
def test_training_macs_against_the_arithmetic_of_the_modules(views: int, trunk_runs: int) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example=torch.randn(2, 3, 8, 8))
    method = available()["PCL"](net, input_augmentation=views == 3)
    trunk = 64 * 27 * 8 + 64 * 72 * 8 + 16 * 72 * 16  # stem, stage1, stage2 (stride 2)
    branch, ensemble = 16 * 144 * 16 + 16 * 5, 48 * 5
    forward = trunk_runs * trunk + 3 * branch
    assert training_macs(method, (3, 8, 8), method.views, 5) == 3 * (forward + ensemble) + forward


@pytest.mark.parametrize("name, options, steps", [("ONE", {}, 1.7), ("DML", {}, 3), ("PCL", {}, 4),
                                                  ("PCL", {"input_augmentation": False}, 2.2)])  # fmt: skip
def test_training_costs_what_the_specification_says(name: str, options: dict[str, Any], steps: float) -> None:
    """In steps of the plain network, rounded to a tenth; ResNet-32's trunk is two thirds of it."""
    recipe = from_options({"method": {"class_path": name, "init_args": options}, "model": "resnet32", "epochs": 1})
    method = recipe.build()
    plain = 3 * macs(method.net.peers[0], recipe.data.shape)
    assert round(training_macs(method, recipe.data.shape, method.views, 10) / plain, 1) == steps


def test_examination_agrees_with_the_record_and_with_a_plain_forward_pass(trained: Path) -> None:
    run = runs.read(trained / "PCL-0")
    found = examine.examine(run, weights=True)
    assert not found.missing
    recorded = run.last["predictors"]["mean1"]
    assert found.error == pytest.approx(recorded["error"])
    recipe = from_options({**OPTIONS, "data": {"class_path": "digits", "init_args": {"limit": 10}}})
    method = recipe.build()
    method.load_state_dict(torch.load(trained / "PCL-0" / "checkpoint.pt", weights_only=True)["method"])
    images, labels = next(recipe.data.test_batches(10_000))
    assert found.tested == sum(n for _, _, n in found.bins) == len(labels)
    ece = sum(abs(c - a) * n for c, a, n in found.bins) / len(labels)
    assert ece == pytest.approx(recorded["ece"], abs=1e-6)
    with torch.no_grad():
        p = method.deploy()(images).softmax(1)
    guess = p.argmax(1)
    for entry in found.classes:
        c = 0 if entry["class"] == EVIL else int(entry["class"])
        missed = (guess[labels == c] != c).float().mean().item()
        assert entry["images"] == int((labels == c).sum()) and entry["error"] == pytest.approx(
            100 * missed, abs=1e-4
        )
    assert [c["error"] for c in found.classes] == sorted((c["error"] for c in found.classes), reverse=True)
    sure = p.amax(1)[guess != labels].sort(descending=True).values[:12]
    said = [float(re.search(r"\((.*) %\)$", m.caption)[1]) for m in found.mistakes]  # type: ignore[index]
    assert said == pytest.approx((100 * sure).tolist(), abs=0.06)
    assert [len(views) for views in found.views] == [3, 3, 3]
    assert found.networks["mean1"].parameters == 77754 and found.networks["ensemble"].parameters > 77754


def test_measured_costs_are_shown(copied: Path, tmp_path: Path) -> None:
    speed = {"latency_ms": 2.0, "images_per_second": 5000.0}
    plain = {"parameters": 100, "macs": 2000, "bytes": 400, "torch": speed}
    slower = {"latency_ms": 3.0, "images_per_second": 2500.0}
    costs = {"plain": plain, "student": plain, "ensemble": {**plain, "parameters": 220, "torch": slower}}
    (copied / "PCL-0" / "costs.json").write_text(json.dumps(costs))
    (copied / "Baseline-0" / "costs.json").write_text("{")  # damaged: left out
    page.write([copied], tmp_path / "r.html", "t")
    head, *rows = Page((tmp_path / "r.html").read_text()).tables["Plain network, student and ensemble"]
    found = [dict(zip((c[0] for c in head), (c[0] for c in row), strict=True)) for row in rows]
    assert [row["network"] for row in found] == ["plain", "student", "ensemble"]
    assert found[2]["parameters"] == "220" and found[2]["torch, × plain"] == "1.50"
    assert found[2]["torch, images/s in batches of 64"] == "2,500"
    assert found[2]["ONNX Runtime, ms for 1 image"] == found[0]["ONNX Runtime, × plain"] == runs.NOTHING


def test_pictures_show_the_pixels_of_the_data(trained: Path) -> None:
    import base64

    from PIL import Image

    data = digits()
    data.load()
    image, _ = next(data.test_batches(1))
    source = examine.picture(image[0], data)
    got = np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))
    assert np.array_equal(got, data.read()[2][0, 0])


def test_names_from_data_and_people_stay_text(copied: Path, tmp_path: Path, shown: Page) -> None:
    assert shown.tags.count("script") == 1 and EVIL in shown.text  # the page's own script, and the class as text
    run = copied / "<img src=x onerror=alert(2)>"
    (copied / "PCL-0").rename(run)
    environment = json.loads((run / "environment.json").read_text())
    environment["command"] = f'coterie "{EVIL}"'
    (run / "environment.json").write_text(json.dumps(environment))
    lines = (run / "metrics.jsonl").read_text().replace('"ce_peers"', '"<b>term</b>\\" onload=\\"x"')
    (run / "metrics.jsonl").write_text(lines)
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    assert found.tags.count("script") == 1 and "b" not in found.tags
    assert "<img src=x onerror=alert(2)>" in found.text and f'coterie "{EVIL}"' in found.text
    assert '<b>term</b>" onload="x' in found.lines["Loss terms: PCL, resnet8 on hostile"]
    assert html.escape(EVIL) in (tmp_path / "r.html").read_text()


def test_missing_partial_and_failed_runs_are_shown_and_named(copied: Path, tmp_path: Path) -> None:
    def edit(name: str, change: Any) -> None:
        file = copied / name / "metrics.jsonl"
        file.write_text(change(file.read_text()))

    for seed in range(2, 8):
        shutil.copytree(copied / "PCL-0", copied / f"PCL-{seed}")
        config = (copied / f"PCL-{seed}" / "config.yaml").read_text()
        (copied / f"PCL-{seed}" / "config.yaml").write_text(config.replace("seed: 0", f"seed: {seed}"))
    edit("PCL-2", lambda text: "".join(text.splitlines(keepends=True)[:2]))
    edit("PCL-3", lambda text: text[:-200])
    (copied / "PCL-4" / "metrics.jsonl").unlink()
    edit("PCL-5", lambda text: re.sub(r'"nll": [\d.]+', '"nll": NaN', text))
    edit("PCL-6", lambda text: text.replace('{"epoch": 1', '{"epoch": oops').replace('"lr": 0.1', '"lr": "?"'))
    (copied / "PCL-7" / "config.yaml").unlink()
    for file in (copied / "Baseline-0").glob("checkpoint*.pt"):
        file.write_bytes(b"not a checkpoint")
    (copied / "Baseline-1" / "environment.json").write_text("{")
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    named = zip(found.column("Runs", "run"), found.column("Runs", "state"), strict=True)
    states = {Path(run).name: state for (run, _), (state, _) in named}
    assert states["PCL-1"] == "complete"
    assert states["PCL-2"] == "2 of 3 epochs so far"
    assert states["PCL-3"] == "the last line of metrics.jsonl is cut off; 2 of 3 epochs so far"
    assert states["PCL-4"] == "no epoch has finished: there is no metrics.jsonl"
    assert "diverged" in states["PCL-5"] and "from epoch 1 on" in states["PCL-5"]
    assert states["PCL-6"] == "line 2 of metrics.jsonl is damaged"
    assert "there is no config.yaml" in states["PCL-7"]
    assert states["Baseline-1"] == "environment.json cannot be read"
    for name, state in states.items():
        assert state == "complete" or f"{name}: {state.split('; ')[0]}" in found.text
    assert "Baseline-0: " in found.text.split("Calibration")[-1]  # its weights cannot be loaded, and it says so
    # Unfinished runs do not count while finished ones are there: seeds 0, 1, 5 and 6 make the mean.
    methods = [text for text, _ in found.column("Results", "method")]
    assert found.column("Results", "seeds")[methods.index("PCL")][1] == 4
    errors = [records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (0, 1)]
    mean = (3 * errors[0] + errors[1]) / 4
    assert found.column("Results", "error %")[methods.index("PCL")][1] == pytest.approx(mean)


def test_one_run_that_has_only_begun(copied: Path, tmp_path: Path) -> None:
    for file in (copied / "PCL-0").iterdir():
        if file.name != "config.yaml":
            file.unlink()
    page.write([copied / "PCL-0"], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    assert "no run has finished an epoch yet" in found.text
    assert "there is no checkpoint.pt" in found.text
    assert found.column("Results", "error %") == [("–", None)]


def test_groups_are_told_apart_by_what_is_unusual(copied: Path) -> None:
    def variant(name: str, old: str, new: str) -> None:
        shutil.copytree(copied / "Baseline-0", copied / name)
        config = (copied / name / "config.yaml").read_text()
        assert old in config
        (copied / name / "config.yaml").write_text(config.replace(old, new))

    variant("b-ema", "ema: false", "ema: true")
    variant("b-long", "epochs: 3", "epochs: 12")
    variant("b-views", "views: 1", "views: 3")
    groups = runs.group([runs.read(path) for path in runs.find([copied])])
    labels = {g.label: [r.path.name for r in g.runs] for g in groups}
    assert labels == {
        "Baseline": ["Baseline-0", "Baseline-1"],
        "PCL": ["PCL-0", "PCL-1"],
        "Baseline, ema": ["b-ema"],
        "Baseline, epochs 12": ["b-long"],
        "Baseline, views 3": ["b-views"],
    }


def test_only_the_same_network_on_the_same_data_is_compared(copied: Path, tmp_path: Path) -> None:
    config = copied / "Baseline-1" / "config.yaml"
    config.write_text(config.read_text().replace("model: resnet8", "model: resnet14"))
    page.write([copied], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    names = zip(found.column("Results", "network and data"), found.column("Results", "method"), strict=True)
    rows = [(setting, method) for (setting, _), (method, _) in names]
    assert rows == [("resnet8 on hostile", m) for m in ("Baseline", "PCL")] + [("resnet14 on hostile", "Baseline")]
    errors = [value for _, value in found.column("Results", "error %")]
    assert [v for _, v in found.column("Results", "against Baseline")] == [
        None,
        pytest.approx(errors[1] - errors[0]),
        None,
    ]
    assert list(found.lines["Error of the deployed network, resnet14 on hostile"]) == ["Baseline"]


def test_weights_that_err_otherwise_than_recorded_are_named(copied: Path, tmp_path: Path) -> None:
    shutil.copyfile(copied / "PCL-1" / "checkpoint.pt", copied / "PCL-0" / "checkpoint.pt")
    page.write([copied / "PCL-0"], tmp_path / "r.html", "t")
    here, there = (records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (1, 0))
    said = f"its weights err on {here:.2f} % here, its record says {there:.2f} %"
    assert said in Page((tmp_path / "r.html").read_text()).text


def test_text_markdown_csv_and_latex_hold_the_same_numbers(
    trained: Path,
    tmp_path: Path,
    shown: Page,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def said(*options: str) -> str:
        main(["report", str(trained), *options])
        return capsys.readouterr().out

    error, _ = shown.column("Results", "error %")[1]
    assert error in said("--text")
    assert re.search(rf"\| PCL \| 2 \| 3 \| \**{re.escape(error)}\** \|", said("--format", "markdown"))
    latex = said("--format", "latex")
    assert error.replace("±", r"$\pm$") in latex and r"error \%" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    each = [trained / name for name in ("Baseline-0", "Baseline-1", "PCL-0", "PCL-1")]
    made = coterie("report", *each, "--format", "csv", "-o", tmp_path / "t.csv")
    assert made.returncode == 0, made.stderr
    first = (tmp_path / "t.csv").read_text().split("\n\n")[0]
    rows = list(csv.DictReader(io.StringIO(first)))
    last = over_seeds(trained, "PCL", lambda r: r["predictors"]["mean1"]["error"])[:, -1]
    assert float(rows[1]["error %"]) == pytest.approx(last.mean())
    assert float(rows[1]["error % std"]) == pytest.approx(last.std(ddof=1))


def test_latex_and_markdown_escape_names() -> None:
    from coterie.report.content import Cell, Table
    from coterie.report.formats import latex, markdown

    table = Table("t", ["a|b_c"], [[Cell(r"50 % of $x_1$ & {<b>} \ ~ ^ # | *", None, True)]])
    assert r"\textbf{50 \% of \$x\_1\$ \& \{$<$b$>$\} \textbackslash{} \textasciitilde{} " in latex(table)
    assert r"a\|b\_c" in markdown(table) and "&lt;b>" in markdown(table) and r"\| \*" in markdown(table)


def test_watch_follows_a_run_until_interrupted(copied: Path, tmp_path: Path) -> None:
    run, file = copied / "PCL-0", tmp_path / "live.html"
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0])
    command = [sys.executable, "-m", "coterie", "report", str(run), "--watch", "-o", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait(lambda: file.exists() and "1 of 3 epochs so far" in file.read_text())
            assert 'http-equiv="refresh"' in file.read_text()
            with (run / "metrics.jsonl").open("a") as metrics:
                metrics.writelines(lines[1:])
            _wait(lambda: "epochs so far" not in file.read_text())
            assert 'http-equiv="refresh"' not in file.read_text()
            assert "Most confident mistakes" in file.read_text()  # finished: now its weights are looked at
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 0 and "Traceback" not in process.stderr.read()  # type: ignore[union-attr]
        finally:
            process.kill()


def _wait(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not follow"
        time.sleep(0.1)


def test_a_full_mini_table_stays_below_three_megabytes(trained: Path, tmp_path: Path) -> None:
    """Twelve recipes, three seeds, 300 epochs; page and file are as large as real ones."""
    first = records(trained / "PCL-0")[-1]
    config = (trained / "PCL-0" / "config.yaml").read_text().replace("epochs: 3", "epochs: 300")
    draw = np.random.default_rng(0)
    for recipe in range(12):
        for seed in range(3):
            run = tmp_path / f"runs/{recipe}-{seed}"
            run.mkdir(parents=True)
            text = config.replace("coterie.PCL", f"nowhere.Method{recipe}").replace("seed: 0", f"seed: {seed}")
            (run / "config.yaml").write_text(text)
            with (run / "metrics.jsonl").open("w") as file:
                for epoch in range(300):
                    first["epoch"], first["terms"] = epoch, {name: draw.random() for name in first["terms"]}
                    for scores in first["predictors"].values():
                        scores["error"] = 40 + draw.random()
                    file.write(json.dumps(first) + "\n")
    page.write([tmp_path / "runs"], tmp_path / "r.html", "t")
    found = Page((tmp_path / "r.html").read_text())
    assert len(found.column("Results", "method")) == 12
    x, y = found.lines["Error of the deployed network, resnet8 on hostile"]["Method3"]
    assert len(x) <= 150 and x[-1] == 300
    last = np.mean([records(tmp_path / f"runs/3-{s}")[-1]["predictors"]["mean1"]["error"] for s in range(3)])
    assert y[-1] == brief(float(last))
    assert (tmp_path / "r.html").stat().st_size < 2_000_000  # a megabyte is left for the networks' pictures


def test_bad_input_is_refused(trained: Path, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        with pytest.raises(InputError) as caught:
            _run(["report", *map(str, arguments)])
        return str(caught.value)

    assert "is not a directory" in refused("report", tmp_path / "none")
    assert "holds no run" in refusal(tmp_path)
    assert "markdown, csv, latex" in refusal(trained, "--format", "pdf")
    assert "exclude each other" in refusal(trained, "--text", "--watch")
    assert "runs is missing" in refusal()
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refusal(trained, "-o", tmp_path / "file" / "r.html")
