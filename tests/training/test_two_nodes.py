"""Two nodes, which are two real `torchrun` on loopback, train what two processes of one node do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.engine import outcome, same

OPTIONS = ["--model", "resnet8", "--data", "digits", "--data.limit", "5", "--batch", "16", "--peers", "2"]
OPTIONS += ["--checkpoint-every", "0s", "--out", "runs/shared"]


def torchrun(directory: Path, *options: object) -> subprocess.Popen[str]:
    """Start a node in a directory of its own."""
    directory.mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *map(str, options),
        "-m",
        "coterie",
        "train",
        *OPTIONS,
    ]
    return subprocess.Popen(
        [*command, "--epochs", "8"],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def two_nodes(root: Path) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--master-addr", "127.0.0.1", "--master-port", port]
    return [
        torchrun(root / f"node{rank}", "--nnodes", 2, "--node-rank", rank, "--nproc-per-node", 1, *place)
        for rank in range(2)
    ]


def finish(nodes: list[subprocess.Popen[str]]) -> tuple[list[int], str]:
    try:
        errors = [node.communicate(timeout=240)[1] for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    return [node.returncode for node in nodes], "".join(errors)


@pytest.mark.slow
def test_two_nodes_train_what_two_processes_of_one_do(tmp_path: Path) -> None:
    """Stopped by a signal that the second node alone receives, and continued; to the bit."""
    nodes = two_nodes(tmp_path)
    out = tmp_path / "node0" / "runs" / "shared"
    end = time.monotonic() + 240
    while not (out / "checkpoint.previous.pt").exists():
        assert all(node.poll() is None for node in nodes) and time.monotonic() < end
        time.sleep(0.02)
    nodes[1].terminate()
    codes, errors = finish(nodes)
    assert 0 not in codes and errors.count("coterie: stopped by a signal after step ") == 2, errors
    codes, errors = finish(two_nodes(tmp_path))
    assert codes == [0, 0], errors
    environment = json.loads((out / "environment.json").read_text())
    assert environment["processes"] == 2 and len(environment["continued"]) == 1
    assert not any((tmp_path / "node1").iterdir())  # only the first process writes
    codes, errors = finish([torchrun(tmp_path / "one", "--standalone", "--nproc-per-node", 2)])
    assert codes == [0], errors
    assert same(outcome(out), outcome(tmp_path / "one" / "runs" / "shared"))
    students = [path / "student.safetensors" for path in (out, tmp_path / "one" / "runs" / "shared")]
    assert students[0].read_bytes() == students[1].read_bytes()
