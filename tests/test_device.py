"""`COTERIE_TEST_DEVICE`: the tests on another device, or a sentence where there is no such device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers import device as device_helper
from tests.helpers.device import with_device


def test_a_device_that_is_not_here_is_refused_before_any_test() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "tests/test_device.py"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "COTERIE_TEST_DEVICE": "cuda:99"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.startswith("ERROR: COTERIE_TEST_DEVICE is 'cuda:99', but torch")
    assert len(result.stderr.strip().splitlines()) == 1


def test_commands_that_train_get_the_device(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    assert device.type == device_helper.NAME.partition(":")[0]
    monkeypatch.setattr(device_helper, "NAME", "cuda")
    assert with_device(["train", "--out", "x"]) == ["train", "--out", "x", "--device", "cuda"]
    assert with_device(["train", "--device", "cpu"]) == ["train", "--device", "cpu"]
    assert with_device(["report", "x"]) == ["report", "x"]
