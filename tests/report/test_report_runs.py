"""The report: runs in whatever state and of whatever name are shown, and like is compared with like."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from coterie.metrics.seeds import NOTHING
from coterie.report import page
from coterie.runs import reader as runs
from tests.helpers.report import EVIL, Page, changed_copy, group_labels, last_error, records


def test_names_from_data_and_people_stay_text(copied: Path, tmp_path: Path, shown: Page) -> None:
    assert shown.tags.count("script") == 1 and EVIL in shown.text  # the page's own script, and the class as text
    run = copied / "<img src=x onerror=alert(2)>"
    (copied / "PCL-0").rename(run)
    environment = json.loads((run / "environment.json").read_text())
    environment["command"] = f'coterie "{EVIL}"'
    (run / "environment.json").write_text(json.dumps(environment))
    lines = (run / "metrics.jsonl").read_text().replace('"ce_peers"', '"<b>term</b>\\" onload=\\"x"')
    (run / "metrics.jsonl").write_text(lines)
    page.write_report([copied], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    assert html_page.tags.count("script") == 1 and "b" not in html_page.tags
    assert "<img src=x onerror=alert(2)>" in html_page.text and f'coterie "{EVIL}"' in html_page.text
    assert '<b>term</b>" onload="x' in html_page.lines["Loss terms: PCL, resnet8 on hostile"]
    assert html.escape(EVIL) in (tmp_path / "r.html").read_text()


def test_records_of_older_versions_have_no_balanced_error(copied: Path, tmp_path: Path) -> None:
    for file in copied.glob("PCL-*/metrics.jsonl"):
        file.write_text(re.sub(r'"balanced_error": [\d.]+, ', "", file.read_text()))
    page.write_report([copied], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    for table in ("Results", "Cost of training", "Student and ensemble"):
        methods = [text for text, _ in html_page.column(table, "method")]
        shown = dict(zip(methods, html_page.column(table, "balanced error %"), strict=True))
        errors = [records(copied / f"Baseline-{s}")[-1]["predictors"]["peer1"]["balanced_error"] for s in (0, 1)]
        assert shown["Baseline"][1] == pytest.approx(sum(errors) / 2) and shown["PCL"] == (NOTHING, None)
        assert html_page.column("Runs", "state")[-1][0] == "complete"


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
    (copied / "Baseline-0" / "evaluation.json").write_text('{"predictors": 1}')
    (copied / "Baseline-1" / "evaluation.json").unlink()
    (copied / "Baseline-1" / "environment.json").write_text("{")
    page.write_report([copied], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    named = zip(html_page.column("Runs", "run"), html_page.column("Runs", "state"), strict=True)
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
        assert state == "complete" or f"{name}: {state.split('; ')[0]}" in html_page.text
    assert "Baseline-0 has no evaluation.json that can be read" in html_page.text
    # Unfinished runs do not count while finished ones are there: seeds 0, 1, 5 and 6 make the mean.
    methods = [text for text, _ in html_page.column("Results", "method")]
    assert html_page.column("Results", "seeds")[methods.index("PCL")][1] == 4
    errors = [records(copied / f"PCL-{s}")[-1]["predictors"]["mean1"]["error"] for s in (0, 1)]
    mean = (3 * errors[0] + errors[1]) / 4
    assert html_page.column("Results", "error %")[methods.index("PCL")][1] == pytest.approx(mean)


def test_one_run_that_has_only_begun(copied: Path, tmp_path: Path) -> None:
    for file in (copied / "PCL-0").iterdir():
        if file.name != "config.yaml":
            file.unlink()
    page.write_report([copied / "PCL-0"], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    assert "no run has finished an epoch yet" in html_page.text
    assert (
        "PCL-0 has no evaluation.json that can be read" in html_page.text
        and "`coterie evaluate RUN`" in html_page.text
    )
    assert html_page.column("Results", "error %") == [("–", None)]


def test_only_the_same_network_on_the_same_data_is_compared(copied: Path, tmp_path: Path) -> None:
    config = copied / "Baseline-1" / "config.yaml"
    config.write_text(config.read_text().replace("model: resnet8", "model: resnet14"))
    page.write_report([copied], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    names = zip(
        html_page.column("Results", "network and data"), html_page.column("Results", "method"), strict=True
    )
    rows = [(setting, method) for (setting, _), (method, _) in names]
    assert rows == [("resnet8 on hostile", m) for m in ("Baseline", "PCL")] + [("resnet14 on hostile", "Baseline")]
    alone, peers = (last_error(copied / f"{method}-0") for method in ("Baseline", "PCL"))  # the only common seed
    assert [v for _, v in html_page.column("Results", "against Baseline")] == [
        None,
        pytest.approx(peers - alone),
        None,
    ]
    assert "(one seed, which says nothing about chance)" in html_page.text
    assert list(html_page.lines["Error of the deployed network, resnet14 on hostile"]) == ["Baseline"]


def test_runs_without_a_common_seed_are_compared_by_their_means(copied: Path, tmp_path: Path) -> None:
    for run, seed in (("PCL-0", 7), ("PCL-1", 8)):
        config = copied / run / "config.yaml"
        config.write_text(re.sub(r"(?m)^seed: \d", f"seed: {seed}", config.read_text()))
    page.write_report([copied], tmp_path / "r.html", "t")
    html_page = Page((tmp_path / "r.html").read_text())
    gain = sum(last_error(copied / f"PCL-{i}") - last_error(copied / f"Baseline-{i}") for i in (0, 1)) / 2
    assert html_page.column("Results", "against Baseline")[1][0] == f"{gain:+.2f} (0)"
    assert "without a seed in common, how much of this is chance is unknown" in html_page.text


def test_damaged_numbers_do_not_end_a_report(copied: Path, tmp_path: Path) -> None:
    config = copied / "PCL-0" / "config.yaml"
    config.write_text(re.sub(r"(?m)^seed: \d", "seed: [1]", config.read_text()))
    file = copied / "PCL-1" / "metrics.jsonl"
    first, second, third = file.read_text().splitlines()
    deep = '{"epoch": ' + "[" * 100_000
    huge = re.sub(r'"error": [\d.]+', f'"error": 1{"0" * 400}', second)
    file.write_text(
        "\n".join([first, huge, deep, third, '{"epoch": 1' + "0" * 400 + third.partition(",")[0] + "}"])
    )
    page.write_report([copied], tmp_path / "r.html", "t")
    assert len(runs.read_run(copied / "PCL-1").records) == 2


def test_other_images_are_other_data(copied: Path, tmp_path: Path) -> None:
    """A PCL trained on more images is not compared with a Baseline that had fewer."""
    for source in ("PCL-0", "PCL-1"):
        shutil.rmtree(copied / source)
    for name, source in (("more", "Baseline-0"), ("more-1", "Baseline-1")):
        changed_copy(copied, source, name, ("limit: 10", "limit: 50"))
    assert sorted(group_labels(copied)) == [
        ("resnet8 on hostile, limit 10", "Baseline", 2),
        ("resnet8 on hostile, limit 50", "Baseline", 2),
    ]
    described = json.loads((copied / "more" / "data.json").read_text())
    for name in ("more", "more-1"):  # as if the folder had changed between the runs
        config = (copied / name / "config.yaml").read_text().replace("limit: 50", "limit: 10")
        (copied / name / "config.yaml").write_text(config)
        (copied / name / "data.json").write_text(json.dumps({**described, "images": {"train": 7}}))
    assert len({setting for setting, _, _ in group_labels(copied)}) == 2


def test_a_teacher_does_not_take_the_first_screen(copied: Path, tmp_path: Path) -> None:
    changed_copy(copied, "Baseline-0", "A-teacher", ("model: resnet8", "model: resnet14"))
    page.write_report([copied], tmp_path / "r.html")
    html_page = Page((tmp_path / "r.html").read_text())
    assert "Baseline, PCL: resnet8 on hostile" in html_page.text
    assert "Trained besides: resnet14 on hostile (Baseline)." in html_page.text
    assert "4.0 ×" in html_page.tiles and "To train it takes 4.0 times the computation" in html_page.text
    assert html_page.column("Results", "network and data")[-1][0] == "resnet14 on hostile"


def test_trainings_of_different_length_are_drawn_over_their_parts(copied: Path, tmp_path: Path) -> None:
    changed_copy(copied, "Baseline-0", "long", ("epochs: 3", "epochs: 6"))
    lines = records(copied / "long")
    with (copied / "long" / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({**line, "epoch": line["epoch"] + 3}) + "\n" for line in lines)
    page.write_report([copied], tmp_path / "r.html")
    curves = Page((tmp_path / "r.html").read_text()).lines["Error of the deployed network, resnet8 on hostile"]
    assert curves["PCL"][0] == pytest.approx([100 / 3, 200 / 3, 100], rel=1e-5)
    assert curves["Baseline, epochs 6"][0] == pytest.approx([100 * k / 6 for k in range(1, 7)], rel=1e-5)


def test_a_record_for_several_epochs_and_weights_ahead_of_it(copied: Path, tmp_path: Path) -> None:
    """A run that goes on and is evaluated now and then has weights newer than its record: that is no fault."""
    run = copied / "PCL-0"
    config = (run / "config.yaml").read_text().replace("evaluate_every: 1", "evaluate_every: 2")
    (run / "config.yaml").write_text(config.replace("epochs: 3", "epochs: 30"))
    _, second, _ = records(run)
    for scores in second["predictors"].values():
        scores["error"] = 1.0
    (run / "metrics.jsonl").write_text(json.dumps(second) + "\n")
    page.write_report([run, copied / "Baseline-0"], tmp_path / "r.html")
    html_page = Page((tmp_path / "r.html").read_text())
    spent = pytest.approx([second["time"]["train"]], rel=1e-4)  # the page rounds
    assert html_page.lines["Error over time, resnet8 on hostile"]["PCL"][0] == spent
    assert "so far, after 2 of 30 epochs, with Baseline on" in html_page.text
    assert "too early to compare" in html_page.text and len(html_page.tiles) == 4  # and no difference
    assert html_page.column("Results", "against Baseline")[1][0] == NOTHING
    assert "its evaluation.json has an error" not in html_page.text
    assert "To train it takes 40.1 times the computation; " in html_page.text  # of thirty epochs, not of these two
    assert html_page.column("Cost of training", "× Baseline by the clock")[1][0] == NOTHING


def test_a_single_run_says_what_it_cost(copied: Path, tmp_path: Path) -> None:
    page.write_report([copied / "PCL-0"], tmp_path / "r.html")
    html_page = Page((tmp_path / "r.html").read_text())
    assert "4.0 times the computation of the plain network; to use it takes no more." in html_page.text


def test_many_problems_do_not_push_the_page_away(copied: Path, tmp_path: Path) -> None:
    for seed in range(2, 10):
        changed_copy(copied, "PCL-0", f"PCL-{seed}", ("seed: 0", f"seed: {seed}"))
        (copied / f"PCL-{seed}" / "metrics.jsonl").write_text("")
    page.write_report([copied], tmp_path / "r.html")
    source = (tmp_path / "r.html").read_text()
    assert "PCL-2 and 7 more: no epoch has finished" in source and "<summary>" not in source
    for seed in range(2, 10):  # each of them something else
        config = (copied / f"PCL-{seed}" / "config.yaml").read_text()
        (copied / f"PCL-{seed}" / "config.yaml").write_text(config.replace("epochs: 3", f"epochs: {seed + 2}"))
        shutil.copy(copied / "PCL-0" / "metrics.jsonl", copied / f"PCL-{seed}")
    page.write_report([copied], tmp_path / "r.html")
    source = (tmp_path / "r.html").read_text()
    assert "<summary>2 more</summary>" in source
    assert all(f"PCL-{seed}: 3 of {seed + 2} epochs so far" in source for seed in range(2, 10))


def test_environments_are_rows_and_continued_ones_are_there(copied: Path, tmp_path: Path) -> None:
    file = copied / "PCL-0" / "environment.json"
    first = json.loads(file.read_text())
    file.write_text(json.dumps({**first, "continued": [{**first, "host": "elsewhere"}]}))
    page.write_report([copied / "PCL-0"], tmp_path / "r.html")
    head, *rows = Page((tmp_path / "r.html").read_text()).tables["Environment"]
    assert [cell for cell, _ in head] == ["what", "environment 1", "environment 2"]
    values = {row[0][0]: [cell for cell, _ in row[1:]] for row in rows}
    assert values["host"] == [first["host"], "elsewhere"] and "continued" not in values


def test_what_has_finished_is_compared_before_what_has_not(copied: Path, tmp_path: Path) -> None:
    changed_copy(copied, "PCL-0", "early", ("epochs: 3", "epochs: 30"))
    file = copied / "early" / "metrics.jsonl"
    file.write_text(re.sub(r'"error": [\d.]+', '"error": 0.5', file.read_text()))
    page.write_report([copied], tmp_path / "r.html")
    assert "trained with PCL, epochs 3 the network errs on" in Page((tmp_path / "r.html").read_text()).text


def test_the_lowest_of_several_is_called_that(copied: Path, tmp_path: Path) -> None:
    page.write_report([copied], tmp_path / "two.html")
    assert "It is the lowest of" not in Page((tmp_path / "two.html").read_text()).text
    changed_copy(copied, "PCL-0", "warm", ("temperature: 3.0", "temperature: 4.0"))
    page.write_report([copied], tmp_path / "three.html")
    assert "It is the lowest of 2 recipes, which flatters it" in Page((tmp_path / "three.html").read_text()).text
