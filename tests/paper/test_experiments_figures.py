"""Fig. 3 to 5: what is read from the curves, over which seeds, and the pictures drawn from them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from coterie.experiments.finished import error_of
from coterie.paper.cells import table_cells
from coterie.paper.reproduce import Reproduction
from coterie.paper.results import ResultRuns
from tests.helpers.experiment import toy, write_run


def test_figures_are_drawn_from_what_there_is(tmp_path: Path) -> None:
    for experiment in ("fig3", "fig4", "fig5"):
        out = tmp_path / experiment
        out.mkdir()
        reproduction = Reproduction(experiment, toy(), out, 2)
        (out / "protocol.json").write_text('{"protocol": "toy"}')
        reproduction.present()
        assert not list(out.glob("*.svg"))  # nothing yet
        jobs = {job.name: job for job in reproduction.jobs() if job.seed == 0}
        for job in jobs.values():
            errors = {"peer1": 40.0, "mean1": 38.0, "ensemble": 37.0}
            write_run(out, job, errors, epochs=2 if job.options["method"] == "PCL" else 1)
        reproduction.present()
        picture = (out / f"{experiment}.svg").read_text()
        assert ElementTree.fromstring(picture).tag.endswith("svg") and "<circle" in picture
        reproduction.present()
        assert (out / f"{experiment}.svg").read_text() == picture  # nothing to commit where nothing changed


def test_what_is_read_from_the_curves(tmp_path: Path) -> None:
    (tmp_path / "protocol.json").write_text('{"protocol": "toy"}')
    fig3 = Reproduction("fig3", toy(epochs=8), tmp_path, 1)
    path = write_run(tmp_path, fig3.cells[4].jobs[0], {"mean1": 38.0})
    errors = [90.0, 80, 85, 70, 71, 60, 59, 58]
    lines = (path / "metrics.jsonl").read_text().splitlines()
    records = [
        json.loads(line) | {"predictors": {"mean1": {"error": e}, "peer1": {"error": e + 2}}}
        for line, e in zip(lines, errors, strict=True)
    ]
    for i, record in enumerate(records):
        record["diversity"] = {"peer": 9.0 if i < 4 else 4.0, "mean": float(i)}
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    full = fig3.tables().lines[4]
    assert full.further["averaged, at 1/2"].mean == 70 and full.further["raw, at 1/2"].mean == 72
    assert full.further["averaged, fluctuation"].mean == pytest.approx((5 + 15) / 2)  # between 1/6 and 1/2
    fig4 = Reproduction("fig4", toy(epochs=8), tmp_path, 1)
    ours = fig4.tables().lines[3]
    variances = list(ours.further.values())[2:]  # raw and averaged, before and after the first drop
    assert [spread.mean for spread in variances] == pytest.approx([9, 4, 1.5, 5.5])


def test_pictures_compare_the_seeds_that_all_rows_have(tmp_path: Path) -> None:
    fig5 = Reproduction("fig5", toy(), tmp_path, 3)
    three, two, four, _ = fig5.cells
    for cell, seeds in ((three, (0, 1, 2)), (two, (1,)), (four, (0, 1))):
        for seed in seeds:
            write_run(tmp_path, cell.jobs[seed], {"mean1": 40.0})
    write_run(tmp_path, two.jobs[2], {"mean1": 40.0}, epochs=1)
    begun = [[job.seed for job in cell.jobs] for cell in ResultRuns(tmp_path, True).common_seeds(fig5.cells)]
    assert begun == [[1], [1], [1], []]  # the last has none, which is no reason to leave out the others
    write_run(tmp_path, two.jobs[0], {"mean1": 40.0})
    done = ResultRuns(tmp_path, True).common_seeds(fig5.cells, kinds=("done",))
    finished = [[job.seed for job in cell.jobs] for cell in done]
    assert finished == [[0, 1], [0, 1], [0, 1], []]


def test_a_damaged_run_is_in_no_figure(tmp_path: Path) -> None:
    cell = next(c for c in table_cells("fig3", toy(), 2) if c.row == "+ L_pm (full)")
    for job, error in zip(cell.jobs, (30.0, 40.0), strict=True):
        run = write_run(tmp_path, job, {"mean1": error})
    (run / "config.yaml").write_text("seed: 7")
    runs = ResultRuns(tmp_path, True)
    (sound,) = runs.common_seeds([cell])
    assert runs.curve(sound, lambda record: error_of(record, "mean1"))[2].values == (30.0,)
