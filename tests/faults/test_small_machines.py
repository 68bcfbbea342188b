"""Little shared memory, full disks, and a lost worker under torchrun, with real mounts and processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from coterie.runs.directory import in_training
from tests.helpers.common import build_once, linux_only
from tests.helpers.photographs import photographs

pytestmark = linux_only


def _may_mount() -> bool:
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(mount, capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "small-photos", lambda root: photographs(root / "set", 20, 4)) / "set"


def train_with_mount(photos: Path, out: Path, mount: str, size: int = 16) -> tuple[int, str]:
    """Train with two workers behind a mount of its own; return exit code and standard error."""
    if not _may_mount():
        pytest.skip("mounting a small file system needs root")
    command = [sys.executable, "-m", "coterie", "train", "--data", str(photos), "--data.size", str(size)]
    command += ["--data.workers", "2", "--model", "resnet8", "--method", "Baseline", "--batch", "20"]
    command += ["--epochs", "2", "--out", str(out)]
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, stderr = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in stderr, stderr
    return process.returncode, stderr


def test_little_shared_memory(tmp_path: Path, photos: Path) -> None:
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    code, stderr = train_with_mount(photos, tmp_path / "out", mount, size=160)
    assert code == 1 and "shared memory is too small for the batches (/dev/shm has 1 MB, of which" in stderr
    assert "with --data.workers 0 none is needed. The run was saved after step 0" in stderr
    assert not in_training(tmp_path / "out")


@pytest.mark.slow
def test_a_full_temporary_directory(tmp_path: Path, photos: Path) -> None:
    """There is room for the first files of the command, and none for the sockets of its workers."""
    mount = "mount -t tmpfs -o nr_inodes=4 tmpfs /mnt && export TMPDIR=/mnt"
    code, stderr = train_with_mount(photos, tmp_path / "out", mount)
    assert code == 1 and "No space left on device; /mnt may be full): --data.workers 0 shows where" in stderr
    assert not in_training(tmp_path / "out")


@pytest.mark.slow
def test_a_full_disk_beside_workers(tmp_path: Path, photos: Path) -> None:
    """The checkpoint does not fit: one sentence, and neither the process nor its workers stay."""
    out = tmp_path / "disk" / "out"
    out.parent.mkdir()
    code, stderr = train_with_mount(photos, out, f"mount -t tmpfs -o size=400k tmpfs {out.parent}")
    assert code == 1 and "could not be written (No space left on device)" in stderr, stderr


@pytest.mark.slow
def test_torchrun_restarts_a_training_whose_data_worker_was_killed(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "-m", "coterie", "train", "--data", str(photos), "--data.size", "16"]
    command += ["--data.workers", "1", "--model", "resnet8", "--method", "Baseline", "--batch", "10"]
    command += ["--epochs", "20", "--checkpoint-every", "0s", "--out", str(out)]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not (out / "checkpoint.previous.pt").exists():
            assert agent.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        second = next(p for p in children if "\0RANK=1\0" in Path(f"/proc/{p}/environ").read_text())
        worker = Path(f"/proc/{second}/task/{second}/children").read_text().split()[0]
        os.kill(int(worker), signal.SIGKILL)
        killed = time.monotonic()
        while Path(f"/proc/{second}").exists():
            assert time.monotonic() - killed < 30
            time.sleep(0.05)
        _, stderr = agent.communicate(timeout=240)
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
    assert agent.returncode == 0, stderr
    assert f"coterie: Data worker 0 (process {worker}) was killed by SIGKILL" in stderr
    assert "Traceback" not in stderr and "Another process of this training has ended" in stderr, stderr
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    assert state["epoch"] == 20
