"""`coterie reproduce --dry-run` answers soon: without data, and with networks whose steps are long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from coterie.config.options import from_options
from coterie.experiments.estimate import measure_speed
from coterie.paper.cells import table_cells
from coterie.paper.protocols import PAPER
from tests.helpers.common import printed


def test_the_runs_of_the_paper_are_counted_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = time.process_time()  # of this process: others may keep the cores busy
    text, _ = printed("reproduce", "table1", "--protocol", "paper", "--dry-run")
    assert time.process_time() - started < 20 and not any(tmp_path.iterdir())
    jobs = {job.name: job for cell in table_cells("table1", PAPER, 3) for job in cell.jobs}
    epochs = sum(job.epochs for job in jobs.values())
    work = sum(job.epochs * job.step_cost() for job in jobs.values())
    assert f"{len(jobs)} runs; {epochs:,} epochs left, as much work as {work:,.0f} of the plain networks" in text
    assert f"{len(jobs)} cannot be estimated" in text and "cifar10 is not under data" in text
    assert "epochs left" in text and "time here" not in text  # no column of nothing


def test_a_long_step_is_measured_on_a_part_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"class_path": "digits", "init_args": {"limit": 10}}
    recipe = from_options({"model": "resnet8", "data": data, "batch": 64, "method": "Baseline"})
    recipe.data.load()
    sizes, views = list[int](), recipe.data.views

    def noted(images: Any, *rest: Any) -> Any:
        sizes.append(len(images))
        return views(images, *rest)

    monkeypatch.setattr(recipe.data, "views", noted)
    assert measure_speed(recipe, 1, seconds=0.0).step > 0 and set(sizes) == {8}
    assert measure_speed(recipe, 1, seconds=100.0).steps == 2 and sizes[-3:] == [64] * 3
