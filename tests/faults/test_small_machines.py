"""Little shared memory, full disks, and a lost worker under torchrun, with real mounts and processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from coterie.runs.directory import in_training
from tests.helpers.common import build_once, linux_only, printed
from tests.helpers.engine import outcome, same
from tests.helpers.photographs import photographs

pytestmark = linux_only


def _may_mount() -> bool:
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(mount, capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "small-photos", lambda root: photographs(root / "set", 20, 4)) / "set"


def train_with_mount(photos: Path, out: Path, mount: str, size: int = 16, batch: int = 20) -> tuple[int, str]:
    """Train with two workers behind a mount of its own; return exit code and standard error."""
    if not _may_mount():
        pytest.skip("mounting a small file system needs root")
    command = [sys.executable, "-m", "coterie", "train", "--data", str(photos), "--data.size", str(size)]
    command += ["--data.workers", "2", "--model", "resnet8", "--method", "Baseline", "--batch", str(batch)]
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
def test_the_shared_memory_of_a_container(tmp_path: Path) -> None:
    """64 MB, as Docker gives: two workers read a batch of 36 MB each."""
    photographs(tmp_path / "photos", 240, 4)
    mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    code, stderr = train_with_mount(tmp_path / "photos", tmp_path / "out", mount, size=224, batch=240)
    assert code == 1 and "shared memory is too small for the batches (/dev/shm has 64 MB, of which" in stderr
    assert "Enlarge it (docker run --shm-size 2g)" in stderr
    assert not in_training(tmp_path / "out")


COMMANDS = {
    "train": "train --model resnet8 --method Baseline --data.limit 5 --batch 25 --epochs 2 --out out",
    "export": "export run -o student.onnx",
    "evaluate": "evaluate run --costs",
    "report": "report run -o report.html",
}
SCRIPT = """
cd "$1"; shift
mount -t tmpfs -o size=$1k tmpfs disk; shift
test -d run && cp -r run disk
cd disk
timeout 250 "$@"; echo "code $?" >&2
mount -o remount,size=50m . && timeout 250 "$@"; echo "code $?" >&2
cp -r . ../result
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    printed(*COMMANDS["train"].replace("--out out", "--out run").split()[:-1], root / "run")
    return root / "run"


def room(name: str, finished: Path, kilobytes: int) -> int:
    """Return the size of a disk with so much room beside what is on it before the command."""
    used = sum(-(-file.stat().st_size // 4096) * 4 for file in finished.rglob("*")) + 8
    return kilobytes + (0 if name == "train" else used)


ROOM = {"train": (4, 40, 200, 600, 1000), "export": (4, 200), "evaluate": (4,), "report": (4, 40)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kilobytes"), [(name, size) for name, sizes in ROOM.items() for size in sizes])
def test_a_small_disk(tmp_path: Path, finished: Path, name: str, kilobytes: int) -> None:
    """A disk that is full is one sentence; once there is room, the same command completes."""
    if not _may_mount():
        pytest.skip("mounting a small file system needs root")
    (tmp_path / "disk").mkdir()
    if name != "train":
        shutil.copytree(finished, tmp_path / "run")
    command = [sys.executable, "-m", "coterie", *COMMANDS[name].split()]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", SCRIPT, "sh", str(tmp_path), str(room(name, finished, kilobytes)), *command],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "Traceback" not in ended.stderr and "error in Coterie" not in ended.stderr, ended.stderr
    full, _, rest = ended.stderr.partition("code ")
    first, again = rest.split()[0], ended.stderr.split()[-1]
    sentences = [line for line in full.splitlines() if line.startswith("coterie: ") and "warning" not in line]
    assert (first, len(sentences)) == ("0", 0) or (first in ("1", "2") and len(sentences) == 1), ended.stderr
    assert first == "0" or "No space left on device" in full, ended.stderr
    assert again == "0", ended.stderr
    result = tmp_path / "result"
    if name == "train":
        expected, student = outcome(finished), (finished / "student.safetensors").read_bytes()
        assert same(outcome(result / "out"), expected)
        assert (result / "out/student.safetensors").read_bytes() == student
    else:
        for file in finished.iterdir():
            if file.name not in ("evaluation.json", "costs.json"):
                assert (result / "run" / file.name).read_bytes() == file.read_bytes(), file


STUCK = """
import sys
from coterie.data import workers
from coterie.cli.main import main

workers.LONGEST_WAIT = 5.0  # of ten minutes
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_torchrun_ends_a_training_whose_data_workers_hang(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "stuck.py").write_text(STUCK)
    with under_torchrun(photos, out, 100_000, str(tmp_path / "stuck.py")) as (agent, _, worker):
        os.kill(worker, signal.SIGSTOP)
        _, stderr = agent.communicate(timeout=120)
    assert agent.returncode == 1, stderr
    assert f"coterie: The data worker (process {worker}) has sent no batch for 5 seconds" in stderr, stderr
    assert stderr.count("Traceback") == 1 and "ChildFailedError" in stderr, stderr  # torchrun's own
    assert not in_training(out) and not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_torchrun_restarts_a_training_whose_data_worker_was_killed(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    with under_torchrun(photos, out, 20, "--max-restarts", "1", "-m", "coterie") as (agent, second, worker):
        os.kill(worker, signal.SIGKILL)
        killed = time.monotonic()
        while Path(f"/proc/{second}").exists():
            assert time.monotonic() - killed < 30
            time.sleep(0.05)
        _, stderr = agent.communicate(timeout=240)
    assert agent.returncode == 0, stderr
    assert f"coterie: Data worker 0 (process {worker}) was killed by SIGKILL" in stderr
    assert "Traceback" not in stderr and "Another process of this training has ended" in stderr, stderr
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    assert state["epoch"] == 20


@contextmanager
def under_torchrun(
    photos: Path, out: Path, epochs: int, *program: str
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Train in two processes with a data worker each; yield torchrun, rank 1 and its worker after two saves."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    command += ["train", "--data", str(photos), "--data.size", "16", "--data.workers", "1", "--model", "resnet8"]
    command += ["--method", "Baseline", "--batch", "10", "--epochs", str(epochs), "--checkpoint-every", "0s"]
    command += ["--out", str(out)]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not (out / "checkpoint.previous.pt").exists():
            assert agent.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        (second,) = (p for p in children(agent.pid) if b"\0RANK=1\0" in Path(f"/proc/{p}/environ").read_bytes())
        yield agent, second, children(second)[0]
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
