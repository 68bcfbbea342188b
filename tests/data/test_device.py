"""Devices: which one is taken, and a training on one that is neither the CPU nor has float64, as Apple's GPUs."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.data.device import accumulator_dtype, best_device, synchronise, to_device
from coterie.data.wrapped import dataset
from coterie.errors import InputError
from coterie.training.distributed import join
from tests.helpers.common import small_recipe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("check", ["methods", "training", "pixels"])
def test_on_a_simulated_device(check: str, tmp_path: Path) -> None:
    """In a process of its own, for torch keeps a device that it has been given."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.helpers.device_checks", check, str(tmp_path)]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, timeout=300
    )
    assert result.returncode == 0, result.stderr[:3000] + result.stderr[-3000:]


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_the_best_device(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(cuda))
    monkeypatch.setattr(torch.mps, "device_count", lambda: int(mps))
    assert best_device() == expected
    assert small_recipe().torch_device() == torch.device(expected)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is one here")
def test_a_device_that_is_not_here_is_refused() -> None:
    with pytest.raises(InputError, match="There is no device 'mps' here"):
        small_recipe(device="mps").torch_device()


def test_apples_gpus_sum_in_float32_and_all_others_in_float64() -> None:
    formats = {name: accumulator_dtype(torch.device(name)) for name in ("cpu", "cuda", "xpu", "mps")}
    assert formats.pop("mps") == torch.float32
    assert set(formats.values()) == {torch.float64}


def test_several_processes_do_not_share_an_apple_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="cannot train on 'mps' together"), join(torch.device("mps")):
        pass


def test_a_copy_on_the_cpu_is_none() -> None:
    tensor = torch.arange(3)
    assert to_device(tensor, "cpu") is tensor
    synchronise(torch.device("cpu"))  # waits for nothing


def test_a_set_that_cannot_be_sent_to_spawned_workers_is_read_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Local(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.full((1, 4, 4), index, dtype=torch.uint8), index % 2

    def pixels(workers: int) -> torch.Tensor:
        data = dataset.of(Local(), Local(), workers=workers)
        data.load()
        return torch.cat([images for images, _ in data.test_batches(3)])

    previous = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        assert torch.equal(pixels(workers=2), pixels(workers=0))
    finally:
        multiprocessing.set_start_method(previous, force=True)
    assert capsys.readouterr().err.count("cannot be sent to workers") == 1
