"""The study's tables, in every form, from directories of runs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from coterie.paper import study
from coterie.paper.cells import table_cells
from coterie.paper.document import END
from coterie.paper.figures import draw_figure
from coterie.paper.reproduce import Reproduction
from coterie.paper.sections import study_section
from coterie.paper.study import PRIMARY, Study
from coterie.report import page
from coterie.report.table import to_latex
from tests.helpers.common import refused
from tests.helpers.study import ERRORS, MIXED, shown, toy_study, write_study_run
from tests.metrics.test_seeds import holm_by_definition, scipys_p


def test_the_tables_numbers_are_those_of_the_runs(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    rows = {row["row"]: row for row in read["rows"]}
    assert list(rows) == [row.name for row in study.CIFAR_ROWS]
    pcl = rows["PCL"]
    assert pcl["error"]["mean"] == pytest.approx(np.mean(ERRORS["PCL"])) and pcl["error"]["count"] == 8
    assert pcl["error"]["std"] == pytest.approx(np.std(ERRORS["PCL"], ddof=1))
    interval = stats.ttest_rel(ERRORS["PCL"], ERRORS["alone"]).confidence_interval(0.95)
    difference = pcl["difference"]
    assert pcl["reference"] == "alone"
    assert difference["mean"] - difference["half_width"] == pytest.approx(interval.low)
    assert pcl["won"] == 8 and pcl["nll"]["mean"] == pytest.approx(np.mean(ERRORS["PCL"]) / 10)
    costs = {name: row["cost"] for name, row in rows.items() if row["cost"] is not None}
    assert costs == pytest.approx(dict(zip(ERRORS, (1, 4, 1, 4, 3, 4, 3, 4), strict=True)))  # by hand
    assert rows["CutMix"]["reference"] == "alone" and rows["KDCL + CutMix"]["reference"] == "CutMix"
    assert rows["ONE"]["error"]["count"] == 0 and rows["ONE"]["notes"] == ["seeds 0, 1, 2, 3, 4, 5, 6, 7 missing"]
    primary = {entry["name"]: entry for entry in read["primary"]}
    assert list(primary) == [pair.name for pair in PRIMARY]
    raw = {
        pair.name: scipys_p([a - b for a, b in zip(ERRORS[pair.row], ERRORS[pair.reference], strict=True)])
        for pair in PRIMARY
    }
    adjusted = holm_by_definition(raw, 6)
    for name, entry in primary.items():
        assert entry["p"] == pytest.approx(raw[name]) and entry["adjusted"] == pytest.approx(adjusted[name])
    assert pcl["comparison"] == primary["PCL - alone"]
    verdicts = {name: entry["verdict"] for name, entry in primary.items()}
    assert verdicts == {
        "PCL - alone": "PCL wins",
        "PCL - alone, 4x epochs": "PCL wins",
        "KDCL - PCL": "KDCL wins",
        "PCL + CutMix - CutMix": "no win",  # one seed has the other sign
        "PCL + CutMix - CutMix, 4x epochs": "no win",
        "KDCL + CutMix - CutMix": "KDCL + CutMix wins",
    }


def test_each_family_is_adjusted_tabulated_and_drawn_by_itself(tmp_path: Path) -> None:
    options = toy_study().settings["study"][0].options
    rows, pairs = study.CIFAR_ROWS, (*PRIMARY, *study.COMPARISONS_OF_OURS)
    both = study.regime("toy", "digits, ResNet8", options, rows, 8, pairs, dict.fromkeys(MIXED, 0.5))
    ours, mixed = study.OURS
    errors = {**ERRORS, "CutMix, 2x epochs": [36.4 + 0.2 * seed for seed in range(8)]}
    errors |= {ours: [error - 0.7 for error in ERRORS["PCL"]], mixed: [36.0 + 0.2 * seed for seed in range(8)]}
    for cell in table_cells("study", both, 8):
        for seed, error in enumerate(errors.get(cell.row, ())):
            write_study_run(tmp_path / "x", cell, seed, error)
    (tmp_path / "x" / "protocol.json").write_text('{"protocol": "toy"}')
    tables = Reproduction("study", both, tmp_path / "x", 8).tables()
    first, second = tables.tables[1:]
    assert (len(first.rows), len(second.rows)) == (6, 3)
    assert "over the 6 comparisons of this family" in first.note
    assert "over the 3 comparisons of this family" in second.note
    entries = {entry["name"]: entry for entry in tables.plain["primary"]}
    assert entries["PCL - alone"]["adjusted"] == pytest.approx(6 * 2 / 256)  # as without the other family
    raw = {
        pair.name: scipys_p([a - b for a, b in zip(errors[pair.row], errors[pair.reference], strict=True)])
        for pair in study.COMPARISONS_OF_OURS
    }
    for name, p in holm_by_definition(raw, 3).items():
        assert entries[name]["adjusted"] == pytest.approx(p)
    assert entries[f"{ours} - PCL"]["verdict"] == f"{ours} wins"
    drawn = draw_figure(tables)
    assert drawn is not None
    picture = drawn.read_text()
    assert "Primary comparisons: digits, ResNet8" in picture and "Comparisons of OwnMean: digits" in picture


def test_a_win_can_be_the_references(toy: Study, tmp_path: Path) -> None:
    cells = {cell.row: cell for cell in table_cells("study", toy, 8)}
    for seed in range(8):
        write_study_run(tmp_path / "x", cells["alone"], seed, 30.0 + seed)
        write_study_run(tmp_path / "x", cells["PCL"], seed, 31.0 + 1.1 * seed)
    (tmp_path / "x" / "protocol.json").write_text('{"protocol": "toy"}')
    entry = Reproduction("study", toy, tmp_path / "x", 8).tables().plain["primary"][0]
    assert entry["adjusted"] == pytest.approx(6 * 2 / 256) and entry["verdict"] == "alone wins"


def test_there_is_no_verdict_before_the_last_seed(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = next(cell for cell in table_cells("study", toy, 8) if cell.row == "PCL").jobs[7]
    (out / last.name / "metrics.jsonl").unlink()
    text = shown(capsys, "study", "--out", out)
    assert text.count("open: 7 of 8 seeds") == 3 and "PCL wins" not in text
    read = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    assert read["primary"][0]["p"] == 2 / 128 and read["primary"][0]["difference"]["count"] == 7
    assert "open: 2 of 8 seeds" in shown(capsys, "study", "--out", out, "--seeds", 2)  # fewer than are planned


def test_seeds_beyond_the_plan_are_refused_and_not_counted(toy: Study, out: Path) -> None:
    assert "has 8 seeds" in refused("reproduce", "study", "--protocol", "toy", "--out", out, "--seeds", 9)
    job = next(cell for cell in table_cells("study", toy, 8) if cell.row == "alone").jobs[0]
    (out / job.name).rename(out / job.name.replace("-s0", "-s8"))
    tables = Reproduction("study", toy, out, 8).tables()
    assert tables.plain["rows"][0]["error"]["count"] == 7


def test_terminal_and_markdown_have_the_same_cells(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    text, written = (shown(capsys, "study", "--out", out, "--format", form) for form in ("table", "markdown"))
    lines = [line for line in written.splitlines() if line.startswith("| ")]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["row", "error %", "n", "compared with", "difference", "seeds won", "Holm p", "NLL", "cost"]
    pcl = next(row for row in cells if row[0] == "PCL")
    interval = stats.ttest_rel(ERRORS["PCL"], ERRORS["alone"]).confidence_interval(0.95)
    difference = f"-2.05 ± {(interval.high - interval.low) / 2:.2f}"
    assert pcl[1:6] == ["38.38 ± 0.37", "8", "alone", difference, "8 of 8"]
    assert pcl[6:] == ["0.0469", "3.837 ± 0.037", "4.0"]  # 6 x 2/256
    (head,) = (number for number, row in enumerate(cells) if row[0] == "comparison")
    assert cells[head] == ["comparison", "n", "difference", "seeds won", "p", "Holm p", "verdict"]
    assert len(cells[head:]) == 8 and cells[head + 2][0] == "PCL - alone"
    on_terminal = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line
    ]
    assert on_terminal == [row for row in cells if set(row[0]) != {"-"} and row[0] not in ("row", "comparison")]
    assert "| **KDCL + CutMix wins** |" in written and "| no win |" in written
    for form in (text, written):
        joined = " ".join(form.split())
        assert "Seeds measure this test set" in joined and "over the 6 comparisons of this family" in joined
        half = 196 * math.sqrt(np.mean(ERRORS["alone"]) / 100 * (1 - np.mean(ERRORS["alone"]) / 100) / 10_000)
        assert f"10,000 test images would move the error of alone by ± {half:.1f} points" in joined


def test_a_selection_shows_its_rows_and_comparisons_with_the_whole_familys_p(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    read = json.loads(shown(capsys, "study", "--out", out, "--only", "alone;PCL;KDCL", "--format", "json"))
    assert [row["row"] for row in read["rows"]] == ["alone", "KDCL", "PCL"]
    assert read["primary"] == [full["primary"][0], full["primary"][2]]
    alone = json.loads(shown(capsys, "study", "--out", out, "--only", "PCL + CutMix", "--format", "json"))
    assert [row["reference"] for row in alone["rows"]] == ["CutMix"] and alone["primary"] == []
    assert alone["rows"][0]["difference"]["count"] == 8


def test_against_compares_all_rows_with_one(toy: Study, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    against = ("--against", "alone, 4x epochs")
    rows = json.loads(shown(capsys, "study", "--out", out, *against, "--format", "json"))["rows"]
    assert [row["row"] for row in rows if not row["reference"]] == ["alone, 4x epochs"]
    pcl = next(row for row in rows if row["row"] == "PCL")
    mean = np.mean(np.subtract(ERRORS["PCL"], ERRORS["alone, 4x epochs"]))
    assert pcl["difference"]["mean"] == pytest.approx(mean)
    assert pcl["comparison"]["name"] == "PCL - alone, 4x epochs"


def test_core_hours_count_each_run_once_at_its_fastest_pace(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = 0.0
    for file in out.glob("*/metrics.jsonl"):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        for record in records:
            record["time"]["train"] *= 500
        seconds += sum(record["time"]["train"] for record in records)
        records[0]["time"]["train"] *= 3  # other work had its core
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
    written = shown(capsys, "study", "--out", out, "--format", "markdown")
    assert seconds > 3600 and f"Training took {seconds / 3600:.1f} core-hours" in written
    split = shown(capsys, "split", "--out", out, "--format", "markdown")
    shared = float(re.findall(r"took ([\d.]+) core-hours", split)[0])
    assert 0 < shared < seconds / 3600  # alone, KDCL and PCL, with five seeds, though rows share runs


def test_a_document_has_the_tables_in_their_place(
    toy: Study, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, begin = tmp_path / "study.md", "<!-- coterie reproduce study --protocol toy -->"
    document.write_text(f"# Study\n\n{begin}\nstale\n{END}\nRest.\n")
    shown(capsys, "study", "--out", out, "--into", document)
    text = document.read_text()
    assert text.startswith(f"# Study\n\n{begin}\n") and text.endswith(f"{END}\nRest.\n") and "stale" not in text
    assert text.count("\n| PCL - alone |") == 1 and text.count("\n| PCL |") == 1
    fewer = Reproduction("study", toy, out, 2).marker
    assert fewer == "<!-- coterie reproduce study --protocol toy --seeds 2 -->"


def test_the_split_names_what_a_row_isolates(toy: Study, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = json.loads(shown(capsys, "split", "--out", out, "--format", "json"))
    rows = {row["row"]: row for row in read["rows"]}
    assert rows["alone"]["error"]["count"] == 5 and read["primary"] == []  # five of the study's eight
    assert rows["KDCL"]["isolates"] == "choice of the teacher by the label"
    averaged = rows["alone + EMA"]
    assert averaged["difference"] == {"mean": 0.0, "half_width": 0.0, "count": 5} and averaged["won"] == 0
    assert "Holm" not in shown(capsys, "split", "--out", out)


def test_the_split_is_drawn_from_what_there_is(
    toy: Study, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, "split", "--out", out)
    picture = (out / "split.svg").read_text()
    assert "alone + EMA - alone" in picture and "KDCL - KDCL, mean of all" not in picture  # the latter has no runs
    shown(capsys, "split", "--out", out)
    assert (out / "split.svg").read_text() == picture
    empty = tmp_path / "empty"
    empty.mkdir()
    shown(capsys, "split", "--out", empty)
    assert not any(empty.iterdir())


def read_forest(file: Path) -> tuple[dict[str, list[float]], list[list[str]]]:
    """The values that a forest plot shows, read with the scale of its axis, and each row's texts."""
    chart = next(element for element in ElementTree.parse(file).iter() if element.get("class") == "chart")
    texts = [e for e in chart if e.tag.endswith("text")]
    ticks = [(float(e.text or ""), float(e.get("x", ""))) for e in texts if e.get("class") is None]
    (low, left), (high, right) = ticks[0], ticks[-1]
    assert low < 0 < high or 0 in (low, high)
    values: dict[str, list[float]] = {}
    for e in chart:
        if e.tag.endswith("circle"):
            value = low + (float(e.get("cx", "")) - left) / (right - left) * (high - low)
            values.setdefault("points" if e.get("fill-opacity") else "means", []).append(value)
        elif e.get("class", "").startswith("whisker"):
            a, b = (float(v) for v in re.findall(r"M([\d.]+) [\d.]+[Hv]", e.get("d", ""))[1:])
            values.setdefault("widths", []).append((b - a) / (right - left) * (high - low))
    written = [e.text or "" for e in texts if e.get("class") in ("name", "detail")]
    return values, [written[i : i + 4] for i in range(0, len(written), 4)]


def test_the_forest_plot_shows_each_primary_comparison(
    toy: Study, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, "study", "--out", out)
    file = out / "study.svg"
    drawn, (values, rows) = file.read_text(), read_forest(file)
    expected = [np.subtract(ERRORS[pair.row], ERRORS[pair.reference]) for pair in PRIMARY]
    assert values["means"] == pytest.approx([each.mean() for each in expected], abs=0.01)
    assert values["points"] == pytest.approx(np.concatenate(expected), abs=0.01)
    intervals = [stats.ttest_1samp(each, 0).confidence_interval(0.95) for each in expected]
    assert values["widths"] == pytest.approx([i.high - i.low for i in intervals], abs=0.02)
    width = (intervals[0].high - intervals[0].low) / 2
    assert rows[0] == ["PCL", "minus alone", f"-2.05 ± {width:.2f}", "PCL wins, 8 seeds"]
    assert [row[-1] for row in rows[3:]] == ["no win, 8 seeds", "no win, 8 seeds", "KDCL + CutMix wins, 8 seeds"]
    for part in (("--only", "alone;PCL"), ("--seeds", 2)):  # not the whole study
        shown(capsys, "study", "--out", out, *part)
        assert file.read_text() == drawn
    last = next(cell for cell in table_cells("study", toy, 8) if cell.row == "alone").jobs[7]
    (out / last.name / "metrics.jsonl").unlink()
    shown(capsys, "study", "--out", out)
    values, rows = read_forest(file)
    assert rows[0][-1] == "open: 7 of 8 seeds" and len(values["points"]) == 6 * 8 - 1
    empty = tmp_path / "empty"
    empty.mkdir()
    shown(capsys, "study", "--out", empty)
    assert not any(empty.iterdir())


def test_the_report_has_the_same_tables(toy: Study, out: Path, tmp_path: Path) -> None:
    assert study_section([tmp_path / "none"], {"toy": toy}) == []
    (section,) = study_section([tmp_path], {"toy": toy})
    expected = Reproduction("study", toy, out, 8).tables().tables
    assert section.tables[:2] == expected
    assert [table.title.partition(":")[0] for table in section.tables] == ["Study", "Primary comparisons", "Split"]
    page.write_report([out], tmp_path / "page.html", paper=[section])
    html = (tmp_path / "page.html").read_text()
    assert "The study" in html and "KDCL + CutMix wins" in html and "Seeds measure this test set" in html
    assert "KDCL + CutMix wins" in to_latex(section.tables[1])
