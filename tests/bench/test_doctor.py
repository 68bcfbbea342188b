"""`coterie doctor`: each check passes here and fails where something is wrong; table, JSON and exit codes."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from coterie.bench import doctor, doctor_machine, doctor_runs, doctor_steps
from coterie.bench.checks import Check, Outcome, Skipped, compare, make_check, without_names
from coterie.bench.doctor_data import check_files, check_views
from coterie.bench.doctor_machine import check_gpus, check_hardware, describe_machine, find_devices
from coterie.bench.doctor_runs import TrainingRuns
from coterie.bench.doctor_speed import check_speed
from coterie.bench.doctor_steps import check_checkpoint, check_method, check_precision
from coterie.data.batch import Crops
from coterie.methods import available
from coterie.methods.cross_entropy import CrossEntropy
from coterie.runs.checkpoints import Checkpoints
from coterie.training.precision import Precision
from tests.helpers.common import coterie, printed, refused

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", list(available()))
def test_a_step_of_every_method_passes(name: str) -> None:
    outcome = check_method(name, CPU)
    assert outcome.status == "pass", outcome.message
    assert outcome.measured.keys() == outcome.bound.keys() == {"terms", "gradients", "weights"}


def test_wrong_terms_gradients_and_weights_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults that only float32 has, as a faulty kernel would."""
    plain, step = CrossEntropy.forward, Precision.step

    def wrong_term(self: CrossEntropy, logits: Tensor, targets: Tensor) -> Tensor:
        return plain(self, logits, targets) * (1.001 if logits.dtype == torch.float32 else 1.0)

    def wrong_step(self: Precision, optimizer: torch.optim.Optimizer) -> bool:
        group = optimizer.param_groups[0]
        group["lr"] *= 1.01 if group["params"][0].dtype == torch.float32 else 1.0
        return step(self, optimizer)

    with monkeypatch.context() as patch:
        patch.setattr(CrossEntropy, "forward", wrong_term)
        outcome = check_method("PCL", CPU)
        assert outcome.status == "fail" and outcome.measured["terms"] > 1e-4 and "report it" in outcome.message
    with monkeypatch.context() as patch:
        patch.setattr(Precision, "step", wrong_step)
        outcome = check_method("PCL", CPU)
        assert outcome.status == "fail" and "weights" in outcome.message and "terms" not in outcome.message


@pytest.mark.parametrize("format", list(doctor_steps.BY_PRECISION))
def test_every_precision_passes(format: Any) -> None:
    outcome = check_precision(format, CPU)
    assert outcome.status == "pass", outcome.message
    assert (outcome.measured["weights"] > 1e-5) == (format != "32")  # it did compute in that format


def test_a_checkpoint_that_loses_digits_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_checkpoint(CPU).status == "pass"
    save = Checkpoints.save

    def rounded(self: Checkpoints, state: dict[str, Any]) -> None:
        method = {k: v.half() if isinstance(v, Tensor) else v for k, v in state["method"].items()}
        save(self, {**state, "method": method})

    monkeypatch.setattr(Checkpoints, "save", rounded)
    outcome = check_checkpoint(CPU)
    assert outcome.status == "fail" and "not what was trained" in outcome.message


def test_pixels_that_change_on_their_way_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_views(CPU).status == check_files(CPU).status == "pass"
    cut = Crops.cut
    with monkeypatch.context() as patch:
        patch.setattr(Crops, "cut", lambda self, images: cut(self, images).flip(-1))
        assert check_views(CPU).status == "fail"
    monkeypatch.setattr("coterie.data.batch.to_device", lambda t, device: t.flip(2) if t.dim() == 5 else t)
    assert check_files(CPU).status == check_views(CPU).status == "fail"  # blue where red was


def test_speed_is_told_for_every_method() -> None:
    outcome = check_speed(CPU)
    assert outcome.status == "pass" and len(outcome.measured) == len(available())
    assert all(value > 0 for value in outcome.measured.values()) and not outcome.bound


def test_a_training_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor_runs.OPTIONS, "model", "resnet9")
    result = make_check(Check("killed", "cpu", TrainingRuns(CPU, tmp_path).check_killed))
    assert result.status == "fail"
    assert "There is no model 'resnet9'" in result.message and "\n" not in result.message


@pytest.mark.parametrize(("change", "status"), [(0.0, "pass"), (1e-6, "fail")])
def test_a_continued_run_must_be_equal_to_the_bit(change: float, status: str, tmp_path: Path) -> None:
    for name, value in (("whole", 1.0), ("killed", 1.0 + change)):
        (tmp_path / name).mkdir()
        save_file({"w": torch.full((3,), value)}, tmp_path / name / "student.safetensors")
    measured = {"weights": doctor_runs._difference(tmp_path / "killed", tmp_path / "whole")}
    assert compare(measured, doctor_runs.EXACT, "report it.").status == status


def test_devices_without_a_second_one_skip_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device, words in (("mps", "no collective operations"), ("cuda", "NCCL needs a GPU for each")):
        with pytest.raises(Skipped, match=words):
            TrainingRuns(torch.device(device), tmp_path).check_two_processes()


def test_gpus_that_torch_cannot_use_are_a_failure_with_a_remedy() -> None:
    machine = {**describe_machine(), "driver": None, "devices": [{"device": "cpu"}]}
    with pytest.raises(Skipped, match=r"no GPU found by torch \(torch.cuda.is_available\(\) is false; torch 2"):
        check_gpus(machine)
    outcome = check_gpus({**machine, "driver": "570.1"})
    assert outcome.status == "fail" and "install the build of torch" in outcome.message
    gpu = {"device": "cuda", "name": "A100", "memory": 80 * 2**30, "capability": "8.0"}
    outcome = check_gpus({**machine, "driver": "570.1", "devices": [{"device": "cpu"}, gpu]})
    assert outcome.status == "pass" and "cuda: A100, 80.0 GB; driver 570.1" in outcome.message
    assert check_hardware(machine).status == "pass"
    assert check_hardware({**machine, "disk_free": 1000}).status == "fail"


def test_every_device_of_torch_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    for count, names in ((1, ["cpu", "cuda"]), (2, ["cpu", "cuda:0", "cuda:1"])):
        monkeypatch.setattr(torch.accelerator, "device_count", lambda count=count: count)
        assert [str(device) for device in find_devices()] == names
    assert "There is no device 'cuda:7' here" in refused("doctor", "--device", "cuda:7")


def test_checks_are_isolated_and_name_nobody() -> None:
    def raises() -> Outcome:
        raise RuntimeError(
            f"no such file {Path.home()}/data of {getpass.getuser()} on {socket.gethostname()}\nsecond"
        )

    result = make_check(Check("odd", "cpu", raises, "update it."))
    assert result.status == "fail" and result.message.startswith(
        "RuntimeError: no such file ~/data of USER on HOST"
    )
    assert result.message.endswith("second: update it.")
    assert without_names("torch 2.13") == "torch 2.13"
    assert compare({"terms": float("nan")}, {"terms": 1.0}, "report it.").status == "fail"


def fake_checks(fails: bool) -> Callable[..., Iterator[Check]]:
    def checks(*_: object) -> Iterator[Check]:
        yield Check("first", "cpu", partial(compare, {"terms": 2e-7}, {"terms": 1e-5}, "report it."))
        yield Check(
            "second", "cuda:0", partial(compare, {"terms": 0.5 if fails else 0.0}, {"terms": 0.1}, "x " * 80)
        )
        yield Check("third", "cpu", partial(_skip, "no GPU"))

    return checks


def _skip(reason: str) -> Outcome:
    raise Skipped(reason)


def test_table_and_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "_checks", fake_checks(fails=False))
    out, _ = printed("doctor")
    assert (
        "pass    cpu    first             terms 2e-07\n" in out
        and "skipped cpu    third             no GPU\n" in out
    )
    assert "2 passed, 0 failed, 1 skipped. To report: coterie doctor --json" in out and "an issue" in out
    monkeypatch.setattr(doctor, "_checks", fake_checks(fails=True))
    with pytest.raises(SystemExit) as ended:
        from coterie.cli.main import main

        main(["doctor"])
    captured = capsys.readouterr()
    assert ended.value.code == 1 and "This machine fails: second (cuda:0)." in captured.err
    assert "fail    cuda:0 second" in captured.out and "terms 0.5 (at most 0.1): x x" in captured.out
    assert max(map(len, captured.out.splitlines())) <= 80


def test_what_is_not_finite_is_null_in_json() -> None:
    result = make_check(
        Check("odd", "cpu", partial(compare, {"terms": float("nan")}, {"terms": 1.0}, "report it."))
    )
    assert "NaN" not in json.dumps(doctor._plain(result)) and "terms nan (at most 1)" in result.message


def test_json_has_all_fields_and_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_checks", fake_checks(fails=False))
    out, err = printed("doctor", "--json")
    result = json.loads(out)
    assert result["schema"] == 1 and result["passed"] and result["coterie"] and "first" in err
    assert {"torch", "python", "cores", "threads", "memory", "disk_free", "devices"} <= result["machine"].keys()
    first, _, third = result["checks"]
    assert first["measured"] == {"terms": 2e-7} and first["bound"] == {"terms": 1e-5} and first["seconds"] >= 0
    assert third["status"] == "skipped" and third["message"] == "no GPU" and third["device"] == "cpu"
    assert str(Path.home()) not in out and socket.gethostname() not in out
    assert not {"host", "command", "directory"} & result["machine"].keys()


def test_reports_go_to_the_tracker_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str]:
            return ["Homepage, https://example.org", "Issues, https://example.org/issues"]

    monkeypatch.setattr(doctor, "metadata", lambda name: Metadata())
    assert doctor.report_address() == "attach it to an issue at https://example.org/issues"
    assert doctor_machine.nvidia_driver() is None or doctor_machine.nvidia_driver()


@pytest.mark.slow
def test_this_machine_passes(tmp_path: Path) -> None:
    """The whole command: compiled steps, a killed run and two processes as well."""
    result = coterie("doctor", "--device", "cpu", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    statuses = {check["name"]: check["status"] for check in json.loads(result.stdout)["checks"]}
    assert {statuses[name] for name in ("compile", "killed, continued", "two processes", "step of PCL")} == {
        "pass"
    }
    assert not list(tmp_path.iterdir())
