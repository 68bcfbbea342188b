"""The report: every number and every curve on the page is the one in metrics.jsonl."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from coterie.report import page
from coterie.report.charts import RIGHT, WIDTH, Axis, Curve, brief, line_chart
from tests.helpers.report import Page, over_seeds, records


def test_results_table_is_what_the_metrics_say(trained: Path, shown: Page) -> None:
    metrics = {"error %": "error", "balanced error %": "balanced_error", "top-5 error %": "top5_error"}
    metrics |= {"NLL": "nll", "calibration error": "ece"}
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
    test = stats.ttest_rel(ends[1], ends[0])
    half = test.confidence_interval(0.95).high + gain
    interval = f"({-gain:+.2f} ± {half:.2f} points, 95 % interval over 2 seeds"
    assert f"{interval}: too few to tell it from chance)" in shown.text  # whatever the interval
    assert shown.column("Results", "against Baseline")[1][0] == f"{-gain:+.2f} ± {half:.2f} (2)"
    for method in ("Baseline", "PCL"):
        last = records(trained / f"{method}-0")[-1]
        ece = last["predictors"][last["deployed"]]["ece"]
        said = f"Expected calibration error {ece:.4f}; seed 0, {last['deployed']}, 1,197 test images."
        assert said in shown.text


@pytest.mark.parametrize("log", [False, True])
def test_lines_are_drawn_where_their_values_are(log: bool) -> None:
    """The scale is read off the axis labels, as a reader does, and the points are measured with it."""
    y = [80.0, 31.0, 12.5, 6.0]
    drawn = line_chart(
        "t", [Curve("a", [1, 2, 3, 4], y, [v / 2 for v in y], [v * 1.1 for v in y])], "epoch", "e", log
    )
    labels = re.findall(r'<text x="81" y="([\d.]+)" text-anchor="end">([\d.]+)</text>', drawn)
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
    expected.append((f"Learning rate, {where}", "Baseline, PCL", "Baseline", lambda r: r["lr"]))
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


def test_a_full_mini_table_stays_below_three_megabytes(trained: Path, tmp_path: Path) -> None:
    """Twelve recipes, three seeds, 300 epochs; page and file are as large as real ones."""
    first = {
        name: value for name, value in records(trained / "PCL-0")[-1].items() if name not in ("run", "digest")
    }
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
    page.write_report([tmp_path / "runs"], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    assert len(html_page.column("Results", "method")) == 12
    x, y = html_page.lines["Error of the deployed network, resnet8 on hostile"]["Method3"]
    assert len(x) <= 150 and x[-1] == 300
    last = np.mean([records(tmp_path / f"runs/3-{s}")[-1]["predictors"]["mean1"]["error"] for s in range(3)])
    assert y[-1] == brief(float(last))
    assert (tmp_path / "r.html").stat().st_size < 2_000_000  # a megabyte is left for the networks' pictures


@pytest.mark.parametrize("last", [1, 2, 3, 12, 300, 1200])
def test_epochs_on_an_axis_are_whole_and_end_with_the_last(last: int) -> None:
    drawn = line_chart(
        "t", [Curve("a", [1, last], [5.0, 3.0])] if last > 1 else [Curve("a", [1], [5.0])], "epoch", "e"
    )
    said = [float(v) for v in re.findall(r'text-anchor="middle">([\d.,]+)</text>', drawn.replace(",", ""))]
    assert said[0] == 1 and said == sorted(set(map(round, said))) and said[-1] <= last and len(said) <= 8
    if last > 1:
        assert f'data-x1="{last}"' in drawn and f'cx="{WIDTH - RIGHT}.0"' in drawn


def test_a_log_axis_over_many_decades_stays_readable() -> None:
    axis = Axis.over("y", [1e-30, 1.0], 0, 100, log=True)
    assert 2 <= len(axis.marks) <= 8
