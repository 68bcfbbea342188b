"""Checks of whole trainings in processes of their own: killed and continued, and divided between two processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from ..errors import Failure, reason
from .checks import Outcome, Skipped, compare

TIMEOUT = 120.0
EPOCHS = 12
OPTIONS = {
    "method": "PCL",
    "model": f"{__package__}.smooth_network:without_batch_norm",
    "peers": 2,
    "data": "digits",
    "data.limit": 5,
    "epochs": EPOCHS,
    "batch": 16,
    "optimizer.lr": 0.02,
    "checkpoint_every": "0s",
}
EXACT, CLOSE = {"weights": 0.0}, {"weights": 1e-3}
"""Relative differences. A CPU repeats a run to the bit; a GPU's kernels may add in any order."""


class TrainingRuns:
    """Trainings of one recipe on a device, in a folder; the uninterrupted one is trained once for all checks."""

    def __init__(self, device: torch.device, folder: Path) -> None:
        self.device, self.folder = device, folder
        self.whole: Path | None = None

    def check_killed(self) -> Outcome:
        """Kill a training after its first records, continue it, and compare it with one that was not killed."""
        whole, killed = self._train_whole(), self.folder / "killed"
        process = self._start(killed)
        deadline = time.monotonic() + TIMEOUT
        while process.poll() is None and _records(killed) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()  # SIGKILL; on Windows TerminateProcess
        if process.wait() == 0:
            raise Skipped("the training was over before it could be killed")
        before = _records(killed)
        if before < 2:
            self._finish(process, killed)
        self._finish(self._start(killed), killed)
        if _records(killed) != EPOCHS:
            return Outcome("fail", f"{_records(killed)} records instead of {EPOCHS}: report it.")
        bound = EXACT if self.device.type == "cpu" else CLOSE
        about = f"; killed in epoch {before + 1} of {EPOCHS}"
        return compare(
            {"weights": _difference(killed, whole)}, bound, "a continued run differs: report it.", about
        )

    def check_two_processes(self) -> Outcome:
        """Train with two processes, and compare with one."""
        if self.device.type not in ("cpu", "cuda"):
            raise Skipped(f"torch has no collective operations for {self.device.type}")
        if self.device.type == "cuda" and torch.cuda.device_count() < 2:
            raise Skipped("NCCL needs a GPU for each process, and there is one")
        if self.device.index:
            raise Skipped("the processes take a GPU each: it is checked with the first one")
        whole, divided = self._train_whole(), self.folder / "divided"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        ranks = [
            self._start(divided, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", **address)
            for rank in (0, 1)
        ]
        try:
            for rank in ranks:
                self._finish(rank, divided)
        finally:
            for rank in ranks:
                rank.kill()
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        remedy = f"two processes do not train what one trains: check {backend}, and report it."
        return compare({"weights": _difference(divided, whole)}, CLOSE, remedy, f"; {backend}")

    def _train_whole(self) -> Path:
        if self.whole is None:
            out = self.folder / "whole"
            self._finish(self._start(out), out)
            self.whole = out
        return self.whole

    def _start(self, out: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start `coterie train`; what it prints goes to a file beside the run."""
        flags = [word for name, value in OPTIONS.items() for word in (f"--{name}", str(value))]
        device = self.device.type if environment else str(self.device)  # each process takes a GPU of its own
        command = [sys.executable, "-m", "coterie", "train", *flags, "--device", device, "--out", str(out)]
        with out.with_suffix(".txt").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})

    def _finish(self, process: subprocess.Popen[bytes], out: Path) -> None:
        """Wait for a training; if it fails or hangs, raise what it printed last."""
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"a training did not end within {TIMEOUT:.0f} s") from None
        if code:
            lines = out.with_suffix(".txt").read_text(errors="replace").strip().splitlines()
            raise Failure(reason(Exception(f"a training ended with code {code}: {lines[-1] if lines else ''}")))


def _records(out: Path) -> int:
    try:
        return len((out / "metrics.jsonl").read_text().splitlines())
    except OSError:
        return 0


def _difference(out: Path, whole: Path) -> float:
    """Return the difference of two students' weights, by their norm."""
    weights, expected = (load_file(run / "student.safetensors") for run in (out, whole))
    differences = torch.cat([(weights[name] - expected[name]).double().flatten() for name in expected])
    norm = torch.cat([tensor.double().flatten() for tensor in expected.values()]).norm()
    return float(differences.norm() / norm)
