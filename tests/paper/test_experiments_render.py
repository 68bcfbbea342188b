"""Tables and figures from run directories in every state: finished, partial, failed, damaged, missing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

from coterie.cli.main import main
from coterie.experiments.run_state import failure_file
from coterie.metrics.seeds import NOTHING
from coterie.paper.cells import ResultCell, table_cells
from coterie.paper.comparisons import result_lines
from coterie.paper.document import END, block_marker
from coterie.paper.protocols import MINI, PAPER, PROTOCOLS
from coterie.paper.reproduce import Reproduction
from coterie.paper.results import ResultRuns
from coterie.paper.sections import paper_section
from coterie.report import page
from coterie.runs import reader as runs
from tests.helpers.common import refused
from tests.helpers.experiment import toy, write_run

BASE = {0: 40.0, 1: 42.0, 2: 41.0}
OURS = {0: 38.5, 1: 39.5, 2: 39.25}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Table 4 of the toy: Baseline done, KD with every kind of trouble, PCL done with two of three seeds."""
    by_row = {cell.row: cell for cell in table_cells("table4", toy(), 3)}
    out = tmp_path / "out"
    out.mkdir()
    (out / "protocol.json").write_text('{"protocol": "toy"}')
    for seed, error in BASE.items():
        write_run(out, by_row["Baseline"].jobs[seed], {"peer1": error, "mean1": error - 1}, train=1.0)
    for seed in (0, 1):
        errors = {"peer1": OURS[seed] + 3, "mean1": OURS[seed], "ensemble": OURS[seed] - 1}
        write_run(out, by_row["PCL"].jobs[seed], errors, train=4.0)
    write_run(out, by_row["PCL"].jobs[2], {"peer1": 1.0, "mean1": 1.0}, epochs=1)
    kd: ResultCell = by_row["KD"]
    failure_file(out, kd.jobs[0]).parent.mkdir()
    failure_file(out, kd.jobs[0]).write_text("out of memory\n")
    broken = write_run(out, kd.jobs[1], {"peer1": 30.0})
    (broken / "config.yaml").write_text(": : :")
    return out


def table4(out: Path, only: str = "", experiment: str = "table4") -> Reproduction:
    return Reproduction(experiment, toy(), out, 3, only)


def test_lines(out: Path) -> None:
    base, kd, pcl = table4(out).tables().lines
    assert base.error.values == (40.0, 42.0, 41.0) and base.averaged.mean == 40.0 and base.difference is None
    assert base.error.std == pytest.approx(1.0) and base.cost == 1.0
    assert pcl.error.values == (38.5, 39.5)  # what is partial does not count
    assert pcl.raw.mean == 42.0 and pcl.cost == pytest.approx(4.0)
    assert (
        pcl.cell.paper is not None
        and pcl.cell.paper == (5.67, 0.12)
        and pcl.cell.paper_setting == "CIFAR-10, ResNet32"
    )
    assert pcl.difference is not None and pcl.difference.half_width is not None
    interval = stats.ttest_rel([38.5, 39.5], [40.0, 42.0]).confidence_interval(0.95)
    assert pcl.difference.mean + pcl.difference.half_width == pytest.approx(interval.high)
    assert pcl.notes == ["seed 2 partial: 1 of 2 epochs"]
    assert kd.error.count == 0 and kd.cost is None and kd.difference is None
    assert kd.notes == [
        "seed 0 failed after 0 of 2 epochs: out of memory",
        "seed 1 damaged: its config.yaml cannot be read",
        "seed 2 missing",
    ]


def test_a_selection_is_still_compared_with_the_first_row(out: Path) -> None:
    (pcl,) = table4(out, "pcl").tables().lines
    assert (
        pcl.reference == "Baseline" and pcl.difference is not None and pcl.difference.mean == pytest.approx(-2.0)
    )


def test_any_row_can_be_what_the_others_are_compared_with(out: Path, tmp_path: Path) -> None:
    base, _, pcl = Reproduction("table4", toy(), out, 3, against="PCL").tables().lines
    assert pcl.difference is None and base.reference == pcl.reference == "PCL"
    assert base.difference is not None and base.difference.half_width is not None
    interval = stats.ttest_rel([40.0, 42.0], [38.5, 39.5]).confidence_interval(0.95)
    assert base.difference.mean - base.difference.half_width == pytest.approx(interval.low)
    assert (base.cost, pcl.cost) == (1.0, pytest.approx(4.0))  # cost stays in that of the first row
    document, begin = tmp_path / "results.md", "<!-- coterie reproduce table4 --protocol toy --against PCL -->"
    assert block_marker("table4", "toy", against="PCL") == begin
    assert (
        block_marker("fig5", "mini", "2 peers", 2)
        == "<!-- coterie reproduce fig5 --protocol mini --only '2 peers' --seeds 2 -->"
    )
    document.write_text(f"{begin}\n{END}\n")
    Reproduction("table4", toy(), out, 3, against="PCL").present(into=str(document))
    assert "difference to PCL" in document.read_text()
    message = refused("reproduce", "table4", "--show", "--out", tmp_path / "none", "--against", "Basline")
    assert "no such row; there are Baseline; KD; PCL" in message


def test_what_there_is_of_further_seeds_is_shown_too(out: Path) -> None:
    fewer = Reproduction("table4", toy(), out, 1)
    base, kd, pcl = fewer.tables().lines
    assert base.error.values == (40.0, 42.0, 41.0) and pcl.error.values == (38.5, 39.5)
    assert kd.notes[1:] == ["seed 1 damaged: its config.yaml cannot be read"]  # seed 2 was not asked for
    assert [row.split("|")[3].strip() for row in fewer.tables().markdown().splitlines()[4:7]] == [
        "3/3",
        "0/1",
        "2/2",
    ]
    (out / f"{fewer.jobs()[0].name}.old1").mkdir()  # somebody's copy
    assert [line.error.values for line in fewer.tables().lines] == [
        base.error.values,
        kd.error.values,
        pcl.error.values,
    ]
    assert len(fewer.jobs()) == 4  # trained is what was asked for, and a teacher
    more = Reproduction("table4", toy(), out, 6).tables().lines
    assert more[0].notes == ["seeds 3, 4, 5 missing"]


def test_terminal_and_markdown(out: Path) -> None:
    tables, screen = table4(out).tables(), io.StringIO()
    tables.show(Console(file=screen, width=60))
    text = screen.getvalue()
    for words in (
        "41.00 ± 1.00",
        "5.67 ± 0.12",
        "39.00 ± 0.71",
        "2/3",
        "0/3",
        "failed",
        "out of memory",
        "missing",
    ):
        assert words in text, words
    table = tables.markdown()
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 5 and len({row.count("|") for row in rows}) == 1
    assert rows[4].startswith("| PCL | 39.00 ± 0.71 | 2/3 | 5.67 ± 0.12 | -2.00 ± 6.35 (2) |")
    assert "- PCL: seed 2 partial: 1 of 2 epochs" in table


def test_a_reason_in_brackets_is_no_markup(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "RuntimeError: [enforce fail at alloc_cpu.cpp:124] cannot open [/data/x]"
    kd = next(cell for cell in table4(out).cells if cell.row == "KD")
    failure_file(out, kd.jobs[0]).write_text(f"{why}\n")
    table4(out).tables().show()
    assert f"KD: seed 0 failed after 0 of 2 epochs: {why}" in capsys.readouterr().out


def test_a_document_says_when_and_on_what_the_runs_were_trained(out: Path) -> None:
    assert "Trained" not in table4(out).tables().markdown()  # these runs have not told
    first, second = (job for cell in table4(out).cells if cell.row == "Baseline" for job in cell.jobs[:2])
    environment = {"date": "2026-11-16T02:42", "commit": "a" * 40, "processor": "P", "threads": 1, "torch": "2"}
    (out / first.name / "environment.json").write_text(json.dumps(environment))
    later = {**environment, "date": "2026-11-18T01:00", "commit": "b" * 40 + "-dirty"}
    (out / second.name / "environment.json").write_text(json.dumps({**environment, "continued": [later]}))
    said = table4(out).tables().markdown().splitlines()[-1]
    assert said == "Trained 2026-11-16 to 2026-11-18, commit aaaaaaa, bbbbbbb-dirty, P, threads 1, torch 2."


def test_a_pupils_cost_is_its_teachers_too(tmp_path: Path) -> None:
    base, kd, _ = table_cells("table4", toy(), 1)
    teacher = kd.jobs[0].needs
    assert teacher is not None
    for job, seconds in ((base.jobs[0], 1.0), (kd.jobs[0], 1.25), (teacher, 3.5)):
        write_run(tmp_path, job, {"peer1": 40.0}, train=seconds)
    assert result_lines("table4", [kd], [base, kd], ResultRuns(tmp_path, True))[0].cost == pytest.approx(4.75)


def test_an_ensembles_row_has_its_own_raw_and_averaged_weights_and_its_size(tmp_path: Path) -> None:
    one, *_, pcl = rows = [
        cell for cell in table_cells("table3", PAPER, 1) if cell.setting.paper_setting[0] == "CIFAR-100"
    ]
    errors = {"peer1": 1.0, "mean1": 2.0, "ensemble": 3.0}
    for cell, other in ((one, "mean_ensemble"), (pcl, "raw_ensemble")):
        run = write_run(tmp_path, cell.jobs[0], {**errors, other: 4.0})
        (run / "data.json").write_text(json.dumps({"shape": [3, 32, 32], "classes": list(range(100))}))
    first, *_, last = result_lines("table3", rows, rows, ResultRuns(tmp_path, True))
    assert (first.error.mean, first.raw.mean, first.averaged.mean) == (3.0, 3.0, 4.0)
    assert (last.error.mean, last.raw.mean, last.averaged.mean) == (3.0, 4.0, 3.0)
    again = write_run(tmp_path, replace(pcl.jobs[0], seed=1), {**errors, "raw_ensemble": 4.0})
    (again / "data.json").write_text((tmp_path / pcl.jobs[0].name / "data.json").read_text())
    first, without, *_, last = result_lines("table3", rows, rows, ResultRuns(tmp_path, True))
    sizes = [[spread.text() for spread in line.further.values()] for line in (first, without, last)]
    assert sizes == [["2.96", "2.96"], [NOTHING, "3.19"], ["3.04", "3.04"]]  # the paper's Table 3


def test_what_was_moved_aside_is_in_no_report(out: Path) -> None:
    kept = runs.find_runs([out.parent])
    (out / kept[0].name).rename(out.with_name("out-damaged"))
    assert runs.find_runs([out.parent]) == kept[1:]
    assert runs.find_runs([out.with_name("out-damaged")]) == [out.with_name("out-damaged")]  # unless it is named


def test_json_is_plain(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table4(out).present("json")
    _, kd, pcl = json.loads(capsys.readouterr().out)
    assert pcl["error"]["values"] == [38.5, 39.5] and pcl["paper"] == {"mean": 5.67, "std": 0.12}
    assert kd["error"]["mean"] is None and kd["difference"] is None and len(kd["notes"]) == 3


def test_a_documents_table_is_replaced_in_place(out: Path, tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    begin = block_marker("table4", "toy")
    document.write_text(f"# Results\n\n{begin}\noutdated\n{END}\n\nWhat holds.\n")
    table4(out).present(into=str(document))
    once = document.read_text()
    table4(out).present(into=str(document))
    assert document.read_text() == once and "outdated" not in once
    assert once.startswith(f"# Results\n\n{begin}\n") and once.endswith(f"{END}\n\nWhat holds.\n")
    assert "| PCL | 39.00" in once


def test_a_document_keeps_the_ends_of_its_lines(out: Path, tmp_path: Path) -> None:
    document, begin = tmp_path / "results.md", block_marker("table4", "toy")
    document.write_bytes(f"# Results\r\n{begin}\r\n{END}\r\nWhat holds.\r\n".encode())
    table4(out).present(into=str(document))
    text = document.read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") > 10 and text.endswith(b"What holds.\r\n")


def test_a_document_without_a_place_is_refused_before_any_training_and_keeps_its_text(tmp_path: Path) -> None:
    document, begin = tmp_path / "results.md", block_marker("table1", "mini")
    endless = f"{begin}\nWhat holds.\n{block_marker('table2', 'mini')}\n{END}\n"  # another table's end
    for content in (b"no place\n", endless.encode(), begin.encode(), b"\xff\xfe" + begin.encode()):
        document.write_bytes(content)
        said = refused("reproduce", "table1", "--out", tmp_path / "none", "--into", document)  # data is not there
        assert "no place for this table" in said or "cannot be read as text" in said
        assert document.read_bytes() == content
    assert not (tmp_path / "none").exists()


def test_nothing_at_all_renders_as_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "table1", "--protocol", "mini", "--show", "--out", str(tmp_path / "x")])
    text = capsys.readouterr().out
    assert text.count("missing") >= 12 and "PCL is the best method" in text
    assert not any(tmp_path.iterdir())


def test_dry_run_lists_runs_with_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PROTOCOLS, "toy", toy())
    main(["reproduce", "fig5", "--protocol", "toy", "--out", str(tmp_path / "x"), "--dry-run", "--seeds", "1"])
    text = capsys.readouterr().out
    assert "4 runs; " in text and text.count("missing") == 4 and "cannot be estimated" not in text
    assert len(re.findall(r"2 │ +[\d.]+ │ +\d+ s │", text)) == 4  # epochs left, cost, time
    assert not (tmp_path / "x").exists()
    with monkeypatch.context() as patch:  # without the data there is a list all the same
        patch.chdir(tmp_path)
        main(["reproduce", "fig5", "--protocol", MINI.name, "--dry-run", "--seeds", "1"])
    text = capsys.readouterr().out
    assert "4 runs" in text and "4 cannot be estimated" in text


def test_dry_run_knows_of_cuts_and_of_teachers_without_weights(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PROTOCOLS, "toy", toy())
    listed = ["reproduce", "table1", "--protocol", "toy", "--out", str(out), "--dry-run", "--seeds", "1"]
    main([*listed, "--only", "PCL, stem shared"])
    assert "cannot be estimated" not in capsys.readouterr().out
    teacher = next(cell for cell in table4(out).cells if cell.row == "KD").jobs[0].needs
    assert teacher is not None
    write_run(out, teacher, {"peer1": 30.0})  # without weights, as results are kept
    main([*listed, "--only", "KD"])
    assert re.search(rf"{teacher.name} +│ damaged +│ +2 │", capsys.readouterr().out)


def test_the_report_shows_ours_paper_sections(out: Path, tmp_path: Path) -> None:
    assert paper_section([tmp_path]) == []
    (section,) = paper_section([out], {"toy": toy()})
    table = next(t for t in section.tables if t.title.startswith("Table 4"))
    assert table.columns[2] == "paper (CIFAR-10, ResNet32)"
    rows = {row[0].text: row for row in table.rows}
    assert rows["Baseline"][1].value == pytest.approx(41.0) and rows["Baseline"][5].value == 3
    assert rows["PCL"][1].value == pytest.approx(39.0) and rows["PCL"][2].text == "5.67 ± 0.12"
    assert rows["PCL"][3].value == pytest.approx(-2.0) and rows["PCL"][4].value == pytest.approx(4.0)
    assert rows["KD"][1].value is None
    assert "KD: seed 0 failed" in table.note and "missing" not in table.note
    page.write_report([out], tmp_path / "page.html", paper=[section])
    assert "Beside the paper" in (tmp_path / "page.html").read_text()


def test_the_report_draws_the_figures_and_finds_results_below(out: Path, tmp_path: Path) -> None:
    (section,) = paper_section([out.parent], {"toy": toy()})
    table = next(t for t in section.tables if t.title.startswith("Table 4"))
    assert "The paper: PCL beats" in table.note
    figure, averaged = (f for f in section.figures if f.title.startswith("Fig. 3"))
    assert "as deployed" in figure.title and "averaged weights" in averaged.title
    assert "Backbone: 41 at" in figure.words and "+ L_pm (full): " in figure.words
    (numbers,) = (t for t in section.tables if t.title.startswith("Fig. 3"))
    assert "raw, fluctuation" in numbers.columns
    (out / "protocol.json").write_text("[")  # damaged: the runs are shown all the same
    assert paper_section([out], {"toy": toy()}) == []
    (out / "protocol.json").write_text("[]")
    assert paper_section([out], {"toy": toy()}) == []


def test_a_pause_is_no_cost(tmp_path: Path) -> None:
    """Time is taken where it went fastest, per epoch, whatever the number of epochs between two records."""
    cell, other = (next(c for c in table_cells("table1", MINI, 1) if c.row == row) for row in ("Baseline", "PCL"))
    for job, slow in ((cell.jobs[0], 900.0), (other.jobs[0], 40.0)):
        file = write_run(tmp_path, job, {"peer1": 40.0, "mean1": 40.0}) / "metrics.jsonl"
        kept = [json.loads(line) for line in file.read_text().splitlines()[9::10]]
        for number, record in enumerate(kept):
            record["time"]["train"] = slow if number % 2 else (40.0 if job is other.jobs[0] else 10.0)
        kept[0]["time"] = {}  # a stretch of which the time is not known tells nothing
        file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    lines = result_lines("table1", [cell, other], table_cells("table1", MINI, 1), ResultRuns(tmp_path, True))
    assert [line.cost for line in lines] == [1.0, pytest.approx(4.0)]


def test_the_fastest_seed_tells_the_cost(tmp_path: Path) -> None:
    """A run that shared its core from beginning to end costs as much as the others of its row."""
    cells = table_cells("table1", MINI, 3)
    cell, other = (next(c for c in cells if c.row == row) for row in ("Baseline", "PCL"))
    for row, paces in ((cell, (1.0, 1.9, 1.5)), (other, (7.4, 3.7, 6.0))):
        for job, seconds in zip(row.jobs, paces, strict=True):
            file = write_run(tmp_path, job, {"peer1": 40.0, "mean1": 40.0}, train=seconds) / "metrics.jsonl"
            file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[9::10]))
    lines = result_lines("table1", [cell, other], cells, ResultRuns(tmp_path, True))
    assert [line.cost for line in lines] == [1.0, pytest.approx(3.7)]
