"""The loops of others: each example is run as a user runs it, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import coterie
from coterie.compat import import_torchvision

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 4 * 25  # four epochs of 1200 images, 24 in a batch, two batches a step


def run(folder: Path, example: str, *options: str, processes: int = 1) -> float:
    """Run an example in a folder and return the errors of its student in per cent."""
    folder.mkdir(exist_ok=True)
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launcher, str(EXAMPLES / example), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    errors = re.findall(r"student ([\d.]+) % errors", result.stdout)
    assert len(errors) == 1, result.stdout  # one of the processes prints
    return float(errors[0])


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name], name


def restored(state: dict[str, Any]) -> coterie.PCL:
    """A new method with what an example has saved; the network is the same in all of them."""
    net = coterie.PeerNet(load_example("plain_pytorch").Net, 3, "high", torch.zeros(2, 1, 8, 8))
    method = coterie.PCL(net)
    method.load_state_dict(state)
    return method


def read_plain(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    state = torch.load(folder / "plain.pt", weights_only=True)
    return state["method"], torch.load(folder / "student.pt", weights_only=True)


def read_lightning(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    checkpoint = torch.load(folder / "lightning" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == STEPS
    state = {name.removeprefix("method."): value for name, value in checkpoint["state_dict"].items()}
    return state, torch.load(folder / "student.pt", weights_only=True)


def read_accelerate(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    state = torch.load(folder / "accelerate" / "pytorch_model.bin", weights_only=True)
    return state, load_file(folder / "student" / "model.safetensors")


@pytest.mark.parametrize(
    ("example", "read"),
    [
        ("plain_pytorch.py", read_plain),
        pytest.param("lightning_module.py", read_lightning, marks=pytest.mark.slow),
        pytest.param("accelerate_loop.py", read_accelerate, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(example: str, read: Any, tmp_path: Path) -> None:
    error = run(tmp_path / "whole", example, "--epochs", "4")
    assert error < 30  # chance is 90
    run(tmp_path / "parts", example, "--epochs", "4", "--stop", "1")
    assert run(tmp_path / "parts", example, "--epochs", "4") == error
    state, student = read(tmp_path / "whole")
    resumed_state, resumed_student = read(tmp_path / "parts")
    assert_equal(state, resumed_state)
    assert_equal(student, resumed_student)
    method = restored(state)
    assert method.mean is not None and method.mean.step == STEPS  # once after each step, not after each batch
    assert_equal(method.deploy().state_dict(), student)  # what was saved is all that deploying needs


@pytest.mark.parametrize("example", ["lightning_module.py", "accelerate_loop.py"])
def test_a_run_ends_with_a_student(example: str, tmp_path: Path) -> None:
    """Interrupted ones are among the slow tests."""
    assert run(tmp_path, example, "--epochs", "2") < 60
    assert (tmp_path / "student.pt").is_file() or (tmp_path / "student" / "model.safetensors").is_file()


@pytest.mark.slow
def test_two_processes_train_one_method(tmp_path: Path) -> None:
    assert run(tmp_path, "plain_pytorch.py", "--epochs", "4", processes=2) < 30
    state, student = read_plain(tmp_path)
    method = restored(state)
    assert method.mean is not None and method.mean.step == STEPS
    assert_equal(method.deploy().state_dict(), student)


def test_the_script_in_the_style_of_timm(tmp_path: Path) -> None:
    assert run(tmp_path, "timm_style.py") < 20
    network = import_torchvision("timm").create_model("test_resnet", num_classes=10, in_chans=1)
    network.load_state_dict(torch.load(tmp_path / "student.pt", weights_only=True))


def test_mixup_of_timm_mixes_all_views_alike() -> None:
    example = load_example("timm_style")
    mixup = example.Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, mode="elem", num_classes=10)
    image, labels = torch.rand(8, 1, 6, 6), torch.arange(8)
    views, targets = example.mix(mixup, [image, image + 1, image + 2], labels)
    assert not torch.equal(views[0], image)
    for offset, view in enumerate(views):  # mixing is linear: the same share of the same partner in each view
        torch.testing.assert_close(view - offset, views[0])
    assert targets.shape == (8, 10) and torch.allclose(targets.sum(1), torch.ones(8))
