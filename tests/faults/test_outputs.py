"""What commands write: never over the files of a run, and never in the place of a device or a pipe."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from coterie.deploy import latency
from coterie.files import write
from coterie.runs.directory import in_training
from coterie.runs.own_files import OWN_FILES
from tests.helpers.common import coterie, not_on_windows, printed, refused, train


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    for name in OWN_FILES:
        (tmp_path / "run" / name).write_text("model: resnet8\n")
    return tmp_path / "run"


@pytest.mark.parametrize("name", OWN_FILES)
def test_nothing_is_written_over_the_files_of_a_run(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    commands = [
        ["report", ".", "-o", name],
        ["report", run, "--curves", run / name],
        ["data", "inspect", "digits", "--sheet", run / name],
    ]
    if name.endswith((".pt", ".safetensors")):
        commands.append(["export", run, "-o", run / name])
    for command in commands:
        assert "is a file of the run" in refused(*command)
    assert (run / name).read_text() == "model: resnet8\n"


@not_on_windows
def test_a_pipe_is_not_replaced_by_a_file(run: Path, tmp_path: Path) -> None:
    """Nor is /dev/null, which the same check refuses: to try that here would need the right to do it."""
    os.mkfifo(tmp_path / "page")
    for command in (["report", run, "-o"], ["report", run, "--curves"]):
        sentence = refused(*command, tmp_path / "page")
        assert sentence == f"{tmp_path / 'page'} cannot be written: it is a pipe or a device, not a file."
    assert stat.S_ISFIFO((tmp_path / "page").stat().st_mode)
    assert refused("report", run, "-o", "/dev/none.html").endswith("files in /dev are devices.")


def test_a_script_that_ends_the_process_is_not_a_success(tmp_path: Path) -> None:
    """A file that trains when it is imported, as many scripts do, and then exits."""
    (tmp_path / "script.py").write_text("import sys\n\nsys.exit(0)\n")
    ended = coterie("cuts", "script.py:make", cwd=tmp_path)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1
    assert "Your own code ended the process" in ended.stderr and "script.py, line 3, exit code 0" in ended.stderr


def test_what_was_measured_is_shown_where_the_run_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "run", "--method=Baseline", "--epochs=1")
    for name in ("evaluation.json", "costs.json"):  # as on a file system that is read-only
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).mkdir()
    measured = {"plain": {"parameters": 78_042, "macs": 1, "bytes": 1}}
    monkeypatch.setattr(latency, "measure_costs", lambda recipe, method: measured)  # which takes seconds
    shown, warned = printed("evaluate", tmp_path / "run", "--costs", "--json")
    assert json.loads(shown)["costs"] == measured
    for name in ("evaluation.json", "costs.json"):
        assert f"coterie: warning: {tmp_path / 'run' / name} could not be written (Is a directory); " in warned


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """A folder from elsewhere may hold links: of the part that is written first, and of the file itself."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("page.html", "page.html.part"):
        (tmp_path / name).symlink_to(victim)
    write(tmp_path / "page.html", "the page")
    assert victim.read_text() == "mine" and (tmp_path / "page.html").read_text() == "the page"
    assert not (tmp_path / "page.html").is_symlink() and not (tmp_path / "page.html.part").exists()


def test_the_lock_of_a_run_is_not_opened_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(victim)
    in_training(tmp_path / "run")
    assert victim.read_text() == "mine"
