"""The runner on a three-run toy experiment: killed, resumed, a seed more, another option, a damaged run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from coterie.cli.main import main
from coterie.errors import InputError
from coterie.experiments.job import Job
from coterie.experiments.launch_local import execute_job
from coterie.experiments.run_state import log_file, run_state
from coterie.experiments.runner import run_jobs
from coterie.files import lock_file
from coterie.paper.cells import select_cells, table_cells
from coterie.paper.protocols import PROTOCOLS
from coterie.paper.reproduce import Reproduction
from coterie.runs.identity import KINDS
from tests.helpers.common import not_on_windows
from tests.helpers.experiment import finish, start, toy, write_run

ONLY = "backbone"


def jobs(seeds: int = 3, **options: object) -> list[Job]:
    return list(select_cells(table_cells("fig3", toy(**options), seeds), ONLY)[0].jobs)


class Reproduce:
    """`coterie reproduce` in this process; the runs it starts are processes of their own."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capture = patch, capture

    def __call__(self, out: Path, *arguments: object, **options: object) -> tuple[int, str, str]:
        self.patch.setitem(PROTOCOLS, "toy", toy(**options))
        command = ["reproduce", "fig3", "--only", ONLY, "--protocol", "toy", "--out", out, "--processes", 2]
        code = 0
        try:
            main([str(argument) for argument in (*command, *arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return (code, *self.capture.readouterr())


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reproduce:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Reproduce(monkeypatch, capsys)


def stamps(out: Path, job: Job) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in (out / job.name).iterdir()}


def starts(out: Path, job: Job) -> int:
    return log_file(out, job).read_text().count("coterie train ")


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of the toy, really trained, once for all tests."""
    out = tmp_path_factory.mktemp("toy") / "out"
    code, _, error = finish(start("fig3", "--only", ONLY, "--out", out, "--processes", 2, "--seeds", 2))
    assert code == 0, error
    return out


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    """A copy of these runs."""
    return Path(shutil.copytree(trained, tmp_path / "out"))


@not_on_windows
def test_killed_in_the_middle_and_resumed(tmp_path: Path, reproduce: Reproduce) -> None:
    """A run is stopped after its first epoch; the same command goes on there."""
    out, long = tmp_path / "out", {"epochs": 12}
    first = start("fig3", "--only", ONLY, "--out", out, "--processes", 1, "--seeds", 1, **long)
    job = jobs(1, **long)[0]
    until(lambda: (out / job.name / "checkpoint.pt").is_file())
    first.send_signal(signal.SIGTERM)
    code, _, _ = finish(first)
    assert code == 130
    before = run_state(out, job)
    assert before.kind == "partial" and before.note == "" and 0 < before.epochs < 12
    code, text, error = reproduce(out, "--seeds", 1, **long)
    assert code == 0, error
    after = run_state(out, job)
    assert after.kind == "done" and starts(out, job) == 2 and "1/1" in text
    assert before.result.records == after.result.records[: before.epochs]  # not repeated: times and all


def test_a_seed_more_is_one_run_more_and_nothing_is_repeated(out: Path, reproduce: Reproduce) -> None:
    first, second = jobs(2)
    shutil.rmtree(out / second.name)
    before = stamps(out, first)
    code, text, error = reproduce(out, "--seeds", 2)
    assert code == 0 and "2/2" in text, error
    assert "[1/1]" in error and second.name in error  # one run was missing
    assert stamps(out, first) == before and run_state(out, second).kind == "done"


def test_another_option_is_a_new_cell_and_no_silent_mix(out: Path, reproduce: Reproduce) -> None:
    old, new = jobs(1)[0], jobs(1, epochs=1)[0]
    before = stamps(out, old)
    code, text, error = reproduce(out, "--seeds", 1, epochs=1)
    assert code == 0 and "1/1" in text, error  # the two seeds of the other option are not among them
    assert stamps(out, old) == before and run_state(out, new).epochs == 1


def test_a_damaged_run_is_said_moved_aside_and_done_anew(out: Path, reproduce: Reproduce) -> None:
    job = jobs(1)[0]
    metrics = out / job.name / "metrics.jsonl"
    good = metrics.read_text()
    lines = good.splitlines()
    metrics.write_text("\n".join(["{garbage", *lines[1:]]) + "\n")
    damaged = metrics.read_bytes()
    code, text, _ = reproduce(out, "--seeds", 2, "--show")
    assert code == 0 and "seed 0 damaged: its metrics.jsonl has a gap" in text and "1/2" in text
    code, text, error = reproduce(out, "--seeds", 2)
    assert code == 0 and "has a gap" in error and "2/2" in text
    aside = out.with_name("out-damaged") / f"{job.name}-1"
    assert str(aside) in error and (aside / "metrics.jsonl").read_bytes() == damaged
    was, now = (json.loads(text.splitlines()[-1])["predictors"] for text in (good, metrics.read_text()))
    assert was == now  # the same seed gives the same result


def test_a_failed_run_is_told(tmp_path: Path, reproduce: Reproduce) -> None:
    code, text, error = reproduce(tmp_path / "out", "--seeds", 1, **{"optimizer.lr": -1.0})
    assert code == 1 and "failed: --optimizer: Invalid learning rate: -1.0" in error
    assert "failed after 0 of 2 epochs: --optimizer: Invalid learning rate" in text and "0/1" in text


@pytest.mark.slow
def test_a_run_that_cannot_be_continued_is_done_anew(out: Path, reproduce: Reproduce) -> None:
    """A partial run of another configuration under this name is refused by `coterie train`."""
    job = jobs(1, batch=24)[0]
    path = write_run(out, job, {"peer1": 50.0}, epochs=1)
    (path / "checkpoint.pt").write_bytes(b"PK\x05\x06" + bytes(18))  # an empty zip: a checkpoint of nothing
    code, text, error = reproduce(out, "--seeds", 1, batch=24)
    assert code == 0 and "moved to" in error and "1/1" in text, error


@not_on_windows
@pytest.mark.slow
def test_a_run_in_progress_is_waited_for_not_trained_twice(out: Path, reproduce: Reproduce) -> None:
    """A runner that was killed leaves its training process behind: the next runner waits for that."""
    long = {"epochs": 5}
    job = jobs(1, **long)[0]
    first = start("fig3", "--only", ONLY, "--out", out, "--seeds", 1, **long)
    until(lambda: (out / job.name / "config.yaml").is_file())
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    code, text, error = reproduce(out, "--seeds", 1, **long)
    assert code == 0 and "1/1" in text, error
    assert starts(out, job) == 1 and run_state(out, job).epochs == 5


def test_a_training_whose_runner_died_while_starting_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the directory before the training that the next runner starts, which is then refused."""
    job = jobs(1)[0]
    out, started = tmp_path / "out", []
    (out / "logs").mkdir(parents=True)
    (out / job.name).mkdir()
    lock = lock_file(out / job.name / ".lock")

    def finish_later() -> None:
        time.sleep(0.7)
        write_run(tmp_path / "done", job, {"peer1": 50.0})
        shutil.copytree(tmp_path / "done" / job.name, out / job.name, dirs_exist_ok=True)
        lock.release()

    def refused(*_: object) -> int:
        assert not started
        started.append(Thread(target=finish_later))
        lock.acquire()
        started[0].start()
        return 2

    monkeypatch.setattr("coterie.experiments.launch_local._train", refused)
    assert execute_job(out, job, False, "data", {}) is None
    assert run_state(out, job).kind == "done" and len(started) == 1


@pytest.fixture
def partial(tmp_path: Path) -> tuple[Path, Job]:
    """A run of one epoch of two, with both its checkpoints."""
    job = jobs(1)[0]
    path = write_run(tmp_path / "out", job, {"peer1": 50.0}, epochs=1)
    size = (path / "metrics.jsonl").stat().st_size
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        torch.save(state_with(size), path / name)
    return path, job


def state_with(length: int) -> dict[str, Any]:
    """Return a checkpoint that needs so many bytes of records, and holds nothing."""
    return {**{key: kind() for key, kind in KINDS.items()}, "metrics": length}


def attempt(path: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Execute a job whose training is refused for a reason that has nothing to do with its directory."""
    monkeypatch.setattr("coterie.experiments.launch_local._train", lambda *_: 2)
    log_file(path.parent, job).parent.mkdir(exist_ok=True)
    log_file(path.parent, job).write_text("coterie: cifar10 is not under data.\n")
    return execute_job(path.parent, job, False, "data", {})


@pytest.mark.parametrize("damaged", ["", "checkpoint.pt"])
def test_what_was_trained_stays_where_training_is_refused_for_another_reason(
    partial: tuple[Path, Job], damaged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a newest checkpoint that is damaged: `coterie train` goes on from the one before."""
    path, job = partial
    if damaged:
        (path / damaged).write_bytes(b"damaged")
    assert attempt(path, job, monkeypatch) == "cifar10 is not under data."
    assert run_state(path.parent, job).epochs == 1 and not path.parent.with_name("out-damaged").exists()


@pytest.mark.parametrize("damage", ["checkpoints", "metrics"])
def test_a_run_that_cannot_be_gone_on_with_is_moved_aside(
    partial: tuple[Path, Job], damage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, job = partial
    if damage == "metrics":
        for file in path.glob("checkpoint*"):
            torch.save(state_with(10**6), file)
    else:
        for file in path.glob("checkpoint*"):
            file.write_bytes(b"damaged")
    attempt(path, job, monkeypatch)
    aside = path.parent.with_name("out-damaged") / f"{job.name}-1"
    assert (aside / "metrics.jsonl").is_file() and not path.exists()
    assert f"moved to {aside}" in capsys.readouterr().err


def test_a_run_of_other_options_under_this_name_is_not_taken_for_it(partial: tuple[Path, Job]) -> None:
    path, job = partial
    stored = json.loads((path / "config.yaml").read_text())
    stored["optimizer"]["init_args"]["lr"] = 0.05
    (path / "config.yaml").write_text(json.dumps(stored))
    state = run_state(path.parent, job)
    assert state.kind == "damaged" and state.note == "its config.yaml has optimizer.lr 0.05, not 0.1"


class Recorder:
    """A launcher that trains nothing: it notes what it was given, and lets some fail, or raise an error."""

    slots = 2

    def __init__(self, out: Path, failing: str = "", error: Exception | None = None) -> None:
        self.out, self.failing, self.error, self.submitted = out, failing, error, list[tuple[str, bool]]()

    def submit(self, job: Job, weights: bool) -> Future[str | None]:
        self.submitted.append((job.name, weights))
        future: Future[str | None] = Future()
        failed = bool(self.failing) and job.name.startswith(self.failing)
        if failed and self.error:
            future.set_exception(self.error)
        else:
            future.set_result("out of memory" if failed else None)
        return future

    def stop(self) -> None:
        self.submitted.append(("stop", False))


def test_a_teacher_comes_first_and_its_failure_is_its_pupils(tmp_path: Path) -> None:
    pupils = [job for cell in select_cells(table_cells("table4", toy(), 2), "KD") for job in cell.jobs]
    teachers = [job.needs for job in pupils if job.needs]
    recorder = Recorder(tmp_path)
    assert run_jobs([*pupils, *teachers], tmp_path, recorder) == {}
    order = [name for name, _ in recorder.submitted]
    assert all(order.index(job.needs.name) < order.index(job.name) for job in pupils if job.needs)
    assert dict(recorder.submitted)[teachers[0].name] and order[-1] == "stop"
    failed = run_jobs([*teachers, *pupils], tmp_path, Recorder(tmp_path, failing="Baseline"))
    assert failed[pupils[0].name] == f"its teacher {teachers[0].name} failed"
    assert failed[teachers[0].name] == "out of memory"
    assert run_state(tmp_path, pupils[0]).note == failed[pupils[0].name]  # a table says so


def test_what_goes_wrong_around_one_run_does_not_end_the_others(tmp_path: Path) -> None:
    wanted = [cell.jobs[0] for cell in table_cells("table2", toy(), 1)]
    recorder = Recorder(tmp_path, "PCL", OSError("no space left on device"))
    failed = run_jobs(wanted, tmp_path, recorder)
    assert len(recorder.submitted) == len(wanted) + 1 and len(failed) == len(wanted) - 1
    assert set(failed.values()) == {"OSError: no space left on device"}


def test_warnings_of_runs_are_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = jobs(2)
    (tmp_path / "logs").mkdir()
    log_file(tmp_path, first).write_text("coterie train\ncoterie: warning: batches are small.\nPCL  epoch 1/2\n")
    log_file(tmp_path, second).write_text("coterie: warning: batches are small.\ncoterie: warning: it guesses.\n")
    assert run_jobs([first, second], tmp_path, Recorder(tmp_path)) == {}
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert [line.partition("-s")[2].partition(": ")[2] for line in lines] == ["batches are small.", "it guesses."]
    assert lines[1] == f"coterie: warning: {second.name}: it guesses."


def test_kept_metrics_are_done_but_no_teacher(tmp_path: Path) -> None:
    job = jobs(1)[0]
    write_run(tmp_path, job, {"peer1": 12.0})
    assert run_state(tmp_path, job).kind == "done"
    assert run_state(tmp_path, job, weights=True).kind == "damaged"


def test_a_run_that_was_killed_before_its_weights_were_written_is_not_done(out: Path, tmp_path: Path) -> None:
    """All records are there; without any weights, on purpose, such runs are results that are kept."""
    job, single = jobs(1)[0], jobs(1, epochs=1)[0]
    run = out / job.name
    (run / "student.safetensors").unlink()
    (run / "checkpoint.pt").unlink()  # killed between two renamings of the last save
    assert (run / "checkpoint.previous.pt").exists() and run_state(out, job).kind == "partial"
    (run / "checkpoint.previous.pt").unlink()
    assert run_state(out, job).kind == "done"
    kept = write_run(tmp_path, single, {"peer1": 12.0})
    assert run_state(tmp_path, single).kind == "done"
    (kept / ".lock").touch()  # of a training, which was killed before its first save
    assert run_state(tmp_path, single).kind == "partial"


@pytest.mark.slow
def test_table4_with_its_teacher(tmp_path: Path) -> None:
    code, text, error = finish(start("table4", "--out", tmp_path / "out", "--seeds", 1))
    assert code == 0 and text.count("1/1") == 3, error
    pupil = select_cells(table_cells("table4", toy(), 1), "KD")[0].jobs[0]
    assert pupil.needs is not None and run_state(tmp_path / "out", pupil.needs, weights=True).kind == "done"


def test_a_network_that_cannot_be_made_is_told_before_any_training(tmp_path: Path) -> None:
    reproduction = Reproduction("table4", toy(model="resnet9"), tmp_path / "out", seeds=1)
    with pytest.raises(InputError, match="resnet9"):
        reproduction.check(reproduction.jobs())
    assert not (tmp_path / "out").exists()
