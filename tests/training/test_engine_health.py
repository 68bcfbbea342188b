"""Signals, losses that are not finite, memory, precision and tracking of a training."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from coterie.config.schedule import Cosine, Rates, rate
from coterie.data.sampler import Piece, epoch_order
from coterie.errors import Failure, InputError
from coterie.methods import Method
from coterie.methods.pcl import PCL
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from coterie.training.memory import max_memory
from coterie.training.meters import LossMeter
from coterie.training.precision import Precision
from tests.helpers.common import linux_only
from tests.helpers.engine import add_plain, ended, fork, outcome, recipe, same, train_into

CPU = torch.device("cpu")


resource = pytest.importorskip("resource", reason="Windows has no such module")


@pytest.fixture(autouse=True, scope="module")
def plain() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        add_plain(patch)
        yield


@pytest.fixture(scope="module")
def whole(plain: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train without interruption, tracked; return the run."""
    out = tmp_path_factory.mktemp("whole")
    train_recipe(recipe(track="tensorboard"), out)
    return out


@linux_only
def test_a_signal_to_the_whole_group_leaves_the_workers_to_the_run(tmp_path: Path) -> None:
    """As `timeout`, systemd and SLURM stop a run: the processes that read images get the signal too."""
    for i in range(24):
        file = tmp_path / "set" / ("train" if i % 3 else "test") / f"class{i % 2}" / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (10 * i, 99, 0)).save(file)
    words = ["--model", "resnet8", "--data", "folder", "--data.root", "set", "--data.size", "32"]
    words += ["--data.workers", "2", "--method", "Baseline", "--batch", "4", "--epochs", "2000", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "coterie", "train", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        metrics = tmp_path / "out/metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        workers = children.read_text().split() if children.exists() else []  # only Linux tells
        for worker in workers:  # first, so that it is not left to chance who is first
            os.kill(int(worker), signal.SIGTERM)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGTERM)  # as `timeout` does
        _, stderr = process.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 75, stderr
    assert "coterie: stopped by a signal after step " in stderr and "Traceback" not in stderr


def test_sigterm_from_the_command_line(tmp_path: Path) -> None:
    """Exit code 75 and one sentence; the same command continues and ends where an undisturbed run ends."""
    words = ["--model", "resnet8", "--data.limit", "5", "--batch", "16", "--peers", "2", "--epochs", "4"]
    command = [sys.executable, "-m", "coterie", "train", *words, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "out/metrics.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 75 and "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith("coterie: stopped by a signal after step "), stderr
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    options = {"model": "resnet8", "epochs": 4, "ema_horizon": 1000 / 117300}
    train_recipe(recipe(**options), tmp_path / "whole")
    assert same(outcome(tmp_path / "out"), outcome(tmp_path / "whole"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_signals_save_in_mid_epoch(tmp_path: Path, whole: Path, number: signal.Signals) -> None:
    def interrupted() -> None:
        original = Method.after_step

        def after_step(self: Method) -> None:
            original(self)
            assert self.mean is not None
            if self.mean.step == 5:
                os.kill(os.getpid(), number)

        Method.after_step = after_step  # type: ignore[method-assign]  # in a process of its own
        train_recipe(recipe(checkpoint_every="1h"), tmp_path / "out")

    assert ended(fork(interrupted)) == [75]
    assert torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)["step"] == 5
    train_recipe(recipe(checkpoint_every="1h"), tmp_path / "out")
    assert same(outcome(tmp_path / "out"), outcome(whole))


def test_a_loss_that_is_not_finite(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = PCL.forward, [0]

    def forward(self: PCL, views: Any, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        terms = original(self, views, labels, epoch)
        calls[0] += 1
        return {**terms, "ce_ensemble": terms["ce_ensemble"] * (math.nan if calls[0] == 5 else 1.0)}

    with monkeypatch.context() as patch:
        patch.setattr(PCL, "forward", forward)
        with pytest.raises(Failure) as failure:
            train_recipe(recipe(), tmp_path / "out")
    images = ", ".join(map(str, epoch_order(0, 1, 50)[:16]))
    assert f"at step 4: ce_ensemble (learning rate 0.1, training images {images})" in str(failure.value)
    assert torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)["step"] == 4
    train_recipe(recipe(), tmp_path / "out")
    assert same(outcome(tmp_path / "out"), outcome(whole))


def test_the_step_is_named_though_the_device_is_synchronised_seldom() -> None:
    meter = LossMeter(CPU)
    meter.check_every = 50  # as on a GPU
    for step in range(49):
        bad = math.inf if step >= 31 else 1.0
        terms = {"loss": torch.tensor(bad), "ce": torch.tensor(1.0), "kl": torch.tensor(bad)}
        meter.add(terms, Piece(np.array([step, 7]), 2, 1.0), step, 0.5)
    with pytest.raises(Failure, match=r"at step 31: loss, kl \(learning rate 0\.5, training images 31, 7\)"):
        meter.check()


@linux_only
def test_out_of_memory_says_what_helps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Run out of memory for real: the kernel gives this process no more."""

    def job() -> None:
        original = PCL.forward

        def forward(self: PCL, views: Any, labels: Tensor, epoch: int) -> dict[str, Tensor]:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * os.sysconf("SC_PAGE_SIZE") + 2**24
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            torch.zeros(2**28)  # more than earlier tests can have left in this process's heap
            return original(self, views, labels, epoch)

        PCL.forward = forward  # type: ignore[method-assign]  # in a process of its own
        data = {"class_path": "digits"}
        train_recipe(recipe(model="resnet8", data=data, batch=600, ema_horizon=1.0), tmp_path / "out")

    assert ended(fork(job)) == [1]
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("coterie:")]
    assert len(errors) == 1 and "Out of memory with a batch of 600: `accumulate` 2" in errors[0], errors


LARGE_PARENT = """
import subprocess, sys
held = b"x" * (1000 << 20)
print(subprocess.run([sys.executable, "-c", sys.argv[1]], check=True, capture_output=True, text=True).stdout)
"""
CHILD = """
import resource, torch
from coterie.training.memory import max_memory
before = max_memory(torch.device("cpu"))
held = b"x" * (300 << 20)
print(before, max_memory(torch.device("cpu")), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="ru_maxrss is right elsewhere")
def test_peak_memory_is_not_that_of_the_process_that_started_it() -> None:
    command = [sys.executable, "-c", LARGE_PARENT, CHILD]
    stdout = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, after, inherited = map(int, stdout.split())
    assert inherited >= 1000 << 20, "this kernel hands nothing on"
    assert 50 << 20 < before < 700 << 20  # torch, and no gigabyte
    assert 200 << 20 < after - before < 310 << 20  # less where the imports' own peak was higher


def test_peak_memory_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_file(self: Path, encoding: str) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_such_file)
    for platform, factor in (("darwin", 1), ("freebsd14", 1024)):
        monkeypatch.setattr(sys, "platform", platform)
        assert max_memory(CPU) == factor * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert max_memory(CPU) == 0


def _terms(out: Path) -> list[dict[str, float]]:
    return [record["terms"] for record in RunDirectory(out).metrics()]


def test_half_precision(tmp_path: Path) -> None:
    options = {"model": "resnet8", "batch": 25, "epochs": 2, "checkpoint_every": "1h"}
    train_recipe(recipe(**options), tmp_path / "32")
    for precision, tolerance in (("bf16", 0.005), ("fp16", 0.0005)):
        train_recipe(recipe(**options, precision=precision), tmp_path / precision)
        for half, full in zip(_terms(tmp_path / precision), _terms(tmp_path / "32"), strict=True):
            assert half["loss"] == pytest.approx(full["loss"], rel=tolerance)
            assert half["loss"] != full["loss"]
            tolerance *= 10  # what is rounded differently grows apart
        state = torch.load(tmp_path / precision / "checkpoint.pt", weights_only=True)["method"]
        assert all(value.dtype == torch.float32 for name, value in state.items() if name.endswith("weight"))


def test_an_overflow_skips_the_step_and_the_average(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """float16: infinite gradients in the third of twelve steps; weights and mean peers move eleven times."""
    original, steps = Precision.step, [0]

    def step(self: Precision, optimizer: torch.optim.Optimizer) -> bool:
        steps[0] += 1
        parameter = optimizer.param_groups[0]["params"][0]
        if steps[0] == 3:
            parameter.grad[0] = math.inf
        before = parameter.detach().clone()
        taken = original(self, optimizer)
        assert taken == (steps[0] != 3)
        assert torch.equal(before, parameter) == (not taken)
        return taken

    monkeypatch.setattr(Precision, "step", step)
    method = train_recipe(recipe(precision="fp16"), tmp_path / "out")
    assert method.mean is not None and method.mean.step == 11
    state = torch.load(tmp_path / "out/checkpoint.pt", weights_only=True)
    assert state["precision"]["scale"] == 2.0**15 and state["step"] == 12


def test_accumulation_and_layout_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model_options": {"dropout": 0.0}}
    method = train_recipe(recipe(**options), tmp_path / "one")
    assert method.net.peers[0].late.weight.is_contiguous(memory_format=torch.channels_last)
    train_recipe(recipe(**options, accumulate=3), tmp_path / "three")
    with monkeypatch.context() as patch:
        patch.setattr(torch, "channels_last", torch.contiguous_format)
        train_recipe(recipe(**options), tmp_path / "contiguous")
    expected = outcome(tmp_path / "one")[0]["method"]
    for name in ("three", "contiguous"):
        for key, value in outcome(tmp_path / name)[0]["method"].items():
            if isinstance(value, Tensor):
                torch.testing.assert_close(value, expected[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("format", ["32", "fp16"])
def test_clipping(format: Any) -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    precision = Precision(CPU, format, clip_norm=0.5)
    precision.backward((weight * weight).sum() / 2)
    assert precision.step(torch.optim.SGD([weight], lr=1.0))
    torch.testing.assert_close(weight.detach(), torch.tensor([3.0 - 0.3, 4.0 - 0.4]), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("how", [True, "reduce-overhead"])
def test_compiled(tmp_path: Path, how: Any) -> None:
    options = {"method": "Baseline", "model": "resnet8", "batch": 25}
    train_recipe(recipe(**options), tmp_path / "eager")
    train_recipe(recipe(**options, compile=how), tmp_path / "compiled")
    for compiled, eager in zip(_terms(tmp_path / "compiled"), _terms(tmp_path / "eager"), strict=True):
        assert compiled == pytest.approx(eager, rel=1e-3)


def test_the_same_numbers_everywhere(tmp_path: Path, whole: Path) -> None:
    """TensorBoard holds what metrics.jsonl holds, once, also after a crash; so does the record."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def dies() -> None:
        original = RunDirectory.save

        def save(self: RunDirectory, state: dict[str, Any]) -> None:
            if state["step"] == 8 and state["epoch"] == 2:  # logged, but never saved
                os.kill(os.getpid(), signal.SIGKILL)
            original(self, state)

        RunDirectory.save = save  # type: ignore[method-assign]  # in a process of its own
        train_recipe(recipe(track="tensorboard"), tmp_path)

    assert ended(fork(dies)) == [-signal.SIGKILL]
    assert ended(fork(train_into(tmp_path, track="tensorboard"))) == [0]
    records = RunDirectory(tmp_path).metrics()
    assert same(outcome(tmp_path), outcome(whole))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for tag, read in {
        "terms/distil_mean": lambda r: r["terms"]["distil_mean"],
        "predictors/mean1/error": lambda r: r["predictors"]["mean1"]["error"],
        "time/images_per_second": lambda r: r["time"]["images_per_second"],
        "lr": lambda r: r["lr"],
    }.items():
        logged = [(event.step, event.value) for event in events.Scalars(tag)]
        assert logged == [(r["epoch"], pytest.approx(read(r), rel=1e-6)) for r in records], tag
    assert records[0]["time"]["memory"] > 2**20
    noted = json.loads((tmp_path / "environment.json").read_text())
    assert noted["seed"] == 0 and noted["torch"] == torch.__version__ and len(noted["continued"]) == 1


def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import wandb  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="`track` wandb needs the package wandb: pip install wandb"):
            train_recipe(recipe(track="wandb"), tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert ended(fork(train_into(tmp_path / "out", track="wandb"))) == [0]
    assert list((tmp_path / "out/wandb").glob("offline-run-*/*.wandb"))


def test_progress_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train_recipe(recipe(checkpoint_every="1h"), tmp_path)
    *lines, last = capfd.readouterr().err.splitlines()
    assert "which is chance level" in last  # after three epochs of a few images
    assert lines[-1].startswith("training  epoch 3/3  error ") and "  done  " in lines[-1]
    assert all(word in lines[-1] for word in ("distil_mean 0.", "images/s", "GB"))
    assert len(lines) <= 10 and all(" left  " in line for line in lines[:-1])


def test_optimisers_and_schedules() -> None:
    """By their torch classes; decay can be kept from biases; cosine with warm-up against its formula."""
    adamw = {"class_path": "AdamW", "init_args": {"lr": 0.01, "weight_decay": 0.1}}
    run_recipe = recipe(model="resnet8", optimizer=adamw, decay_norm_and_bias=False)
    optimizer = run_recipe.build_optimizer(method := run_recipe.build())
    assert isinstance(optimizer, torch.optim.AdamW)
    decayed, free = optimizer.param_groups
    assert decayed["weight_decay"] == 0.1 and free["weight_decay"] == 0.0
    assert all(p.dim() > 1 for p in decayed["params"]) and all(p.dim() == 1 for p in free["params"])
    assert len(decayed["params"]) + len(free["params"]) == sum(p.requires_grad for p in method.parameters())
    rates = Rates(Cosine(), optimizer, epochs=10, per_epoch=10, warmup=0.1)
    for step in (0, 4, 9, 10, 55, 99):
        expected = 0.01 * min(1, (step + 1) / 10) * (1 + math.cos(math.pi * step / 100)) / 2
        assert rates.set(step) == pytest.approx(expected) == pytest.approx(0.01 * rate(Cosine(), step, 100, 0.1))
    torch_rates = Rates(lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5), optimizer, 3, per_epoch=2)
    optimizer.step()
    start = torch_rates.set(0)
    assert [torch_rates.set(step) / start for step in range(1, 6)] == [1, 0.5, 0.5, 0.25, 0.25]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`checkpoint_every` is a time such as"):
        recipe(checkpoint_every="soon")
    with pytest.raises(InputError, match="`accumulate` must be at least 1"):
        recipe(accumulate=0)
    with pytest.raises(InputError, match="`clip_norm` must be greater than 0"):
        recipe(clip_norm=0.0)
    with pytest.raises(InputError, match="`warmup` belongs to"):
        schedule = {"class_path": "torch.optim.lr_scheduler.ExponentialLR", "init_args": {"gamma": 0.9}}
        train_recipe(recipe(schedule=schedule, warmup=0.1), tmp_path / "warm")
    with pytest.raises(InputError, match="`sync_batch_norm` needs a GPU"):
        train_recipe(recipe(sync_batch_norm=True, device="cpu"), tmp_path / "synchronised")
    assert not list(tmp_path.iterdir())  # a refused command leaves nothing that would stand in a better one's way
    with pytest.raises(InputError, match="precision"):
        recipe(precision="64")
