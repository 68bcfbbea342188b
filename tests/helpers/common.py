"""Helpers of many tests: a small network, and the command line as users call it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from torch import Tensor, nn

from .device import OPTION, with_device

if TYPE_CHECKING:
    from coterie.config.recipe import Recipe

# Results are the same to the bit only with the same number of threads, in this process and in those it starts.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="needs signals, links or pipes of POSIX")
linux_only = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")


class TinyNet(nn.Module):
    """A network of our own: three convolutional stages, batch-norm, a Linear. Runs in a millisecond."""

    def __init__(self, classes: int = 5, width: int = 8, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.stage1 = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU())
        self.stage3 = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stage3(self.stage2(self.stage1(self.stem(x)))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def small_recipe(**options: object) -> Recipe:
    """Return four epochs of ResNet-8 on a hundred digits."""
    from coterie.config.options import from_options

    data = {"class_path": "digits", "init_args": {"limit": 10}}
    return from_options({"model": "resnet8", "data": data, "epochs": 4, "batch": 32, **OPTION, **options})


def coterie(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, in a process of its own with one thread."""
    return subprocess.run(
        [sys.executable, "-m", "coterie", *with_device([str(argument) for argument in arguments])],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
    )


def printed(*arguments: object, stdin: bytes = b"") -> tuple[str, str]:
    """Run a command in this process; return what it writes to standard output and error."""
    from coterie.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        patch.setenv("COLUMNS", "200")
        main(with_device([str(argument) for argument in arguments]))
    return out.getvalue(), err.getvalue()


def refused(*arguments: object, cwd: Path | None = None) -> str:
    """Run a command that must be refused with exit code 2 and one sentence; return the sentence.

    It runs in this process, where an exception that is not an InputError fails the test by itself.
    """
    from coterie.cli.main import main

    stderr = io.StringIO()
    with contextlib.chdir(cwd or "."), contextlib.redirect_stderr(stderr), pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 2, stderr.getvalue()
    lines = stderr.getvalue().strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("coterie: "), stderr.getvalue()
    return lines[0].removeprefix("coterie: ")


def script(name: str, folder: str = "benchmarks") -> ModuleType:
    """Import a script of benchmarks/ or docs/ as a module."""
    path = str(Path(__file__).parents[2] / folder)
    if path not in sys.path:
        sys.path.append(path)  # as where `python benchmarks/NAME.py` finds the others
    return importlib.import_module(name)


def picture(seed: int = 0, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """Return an image of smooth random colours, which JPEG hardly changes."""
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize(
        size, Image.Resampling.BICUBIC
    )


def shared_data(name: str) -> Path:
    """Return a file of the project's shared real data, for tests marked `slow`; skip them where it is absent."""
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / name
    if not file.exists():
        pytest.skip(f"the shared data file {name} is not beside this checkout")
    return file


def train(out: Path, *options: object) -> Path:
    """Train on digits for a few seconds; return the run directory."""
    arguments = ["--model", "resnet8", "--data", "digits", "--data.limit", 30, "--batch", 64, "--epochs", 5]
    printed("train", *arguments, "--out", out, *options)
    return out


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that is built once for all workers of pytest-xdist, by the first that needs it."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = root / f"shared-{name}", root / f"shared-{name}.done"
    with FileLock(root / f"shared-{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker whose build failed
            folder.mkdir()
            build(folder)
            done.touch()
    return folder


@contextlib.contextmanager
def short_temporary_directory() -> Iterator[Path]:
    """Yield a temporary directory whose path is short enough for sockets, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name:
        yield Path(name)
