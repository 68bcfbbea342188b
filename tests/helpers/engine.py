"""Helpers of the tests of training: a small network without batch-norm, and runs in their own processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie import models
from coterie.config.options import from_options
from coterie.config.recipe import Recipe
from coterie.errors import Failure, InputError, Stopped
from coterie.methods import Method
from coterie.training.loop import train_recipe

from .device import NAME, OPTION

if sys.platform == "win32":
    pytest.skip("its processes are forked", allow_module_level=True)


class Plain(nn.Module):
    """A network without batch-norm, so that a batch may be split, and with dropout, to detect a wrong seed."""

    default_cut = "late"

    def __init__(
        self, num_classes: int = 10, in_channels: int = 1, dropout: float = 0.2, unused: bool = False
    ) -> None:
        super().__init__()
        self.early = nn.Conv2d(in_channels, 8, 3, 2, 1)
        self.dropout = nn.Dropout(dropout)
        self.late = nn.Conv2d(8, 8, 3, 2, 1)
        self.head = nn.Linear(8, num_classes)
        self.unused = nn.Linear(8, 8) if unused else None

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.late(self.dropout(torch.relu(self.early(x)))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def add_plain(patch: pytest.MonkeyPatch) -> None:
    """Register the model `plain`, and import what is slow to import before processes are forked."""
    ours = models.networks()
    patch.setattr(models, "networks", lambda: {**ours, "plain": Plain})
    default = recipe()
    default.build_optimizer(default.build())


def recipe(**changes: Any) -> Recipe:
    """Return twelve steps of PCL, saved after each: three epochs of 50 digits in batches of 16, 16, 16 and 2."""
    data = {"class_path": "digits", "init_args": {"limit": 5}}
    options = {"method": "PCL", "model": "plain", "data": data, "epochs": 3, "batch": 16, "peers": 2}
    return from_options({**options, **OPTION, "ema_horizon": 0.5, "checkpoint_every": "0s", **changes})


def outcome(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the last state of a run, and its records without times and what else differs from run to run."""
    state = torch.load(out / "checkpoint.pt", weights_only=True, map_location="cpu")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        del record["time"], record["run"], record["digest"]
    return {key: state[key] for key in ("epoch", "step", "method", "optimizer", "rates", "precision")}, records


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are equal bit for bit, tensors included."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


class Crash(BaseException):
    """Raised in place of a killed process."""


def crash_steps(patch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that has Crash raised after n optimiser steps, before anything of the nth is saved."""
    original, left = Method.after_step, [0]

    def after_step(self: Method) -> None:
        original(self)
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    patch.setattr(Method, "after_step", after_step)
    return lambda steps: left.__setitem__(0, steps)


def fork(job: Callable[[], Any], **environment: str) -> multiprocessing.Process:
    """Start a process that does a job; its exit code is that of the command line."""
    if NAME != "cpu":
        pytest.skip("a forked process cannot use a GPU that its parent has used; `coterie doctor` kills real runs")

    def body() -> None:
        os.environ.update(environment)
        torch.set_num_threads(1)
        try:
            job()
            os._exit(0)
        except (InputError, Failure, Stopped) as error:
            print(f"coterie: {error}", file=sys.stderr, flush=True)
            os._exit({InputError: 2, Failure: 1, Stopped: 75}[type(error)])
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(99)

    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    return process


def fork_ranks(size: int, job: Callable[[], Any]) -> list[multiprocessing.Process]:
    """Start the processes of one training, as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    return [fork(job, RANK=str(rank), LOCAL_RANK=str(rank), **rendezvous) for rank in range(size)]


def ended(*processes: multiprocessing.Process, timeout: float = 120) -> list[int | None]:
    """Wait for processes; one that hangs is killed and gives None."""
    for process in processes:
        process.join(timeout)
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
    return codes


def train_into(out: Path, **changes: Any) -> Callable[[], Any]:
    return lambda: train_recipe(recipe(**changes), out)
