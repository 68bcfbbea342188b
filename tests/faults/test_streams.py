"""Standard streams that are closed, or that nobody reads: the exit code still says how a command ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.common import not_on_windows

pytestmark = not_on_windows


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell, in which `coterie` is this one."""
    program = f'coterie() {{ "{sys.executable}" -m coterie "$@"; }}\n{line}'
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", program], cwd=cwd, capture_output=True, text=True, timeout=300, env=environment
    )


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_wrong_call_without_standard_streams(tmp_path: Path, closed: str) -> None:
    assert shell(f"coterie trian {closed}", tmp_path).returncode == 2


def test_a_command_without_standard_output(tmp_path: Path) -> None:
    ended = shell("coterie predict none.onnx - <&- >&-", tmp_path)
    assert ended.returncode == 2 and ended.stderr == "coterie: none.onnx does not exist.\n"


@pytest.mark.parametrize("stream", ["", "2>&1 >/dev/null"])
def test_a_command_whose_output_nobody_reads_has_not_ended_well(tmp_path: Path, stream: str) -> None:
    """A training whose log is piped into a program that ends must not seem to be finished."""
    command = "train --help" if not stream else "evaluate none"
    ended = shell(f"coterie {command} {stream} | (exec <&-; sleep 0.1); echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (ended.stdout, ended.stderr) == ("1\n", "")
