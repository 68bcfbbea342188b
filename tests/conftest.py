"""Fixtures that the tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from .helpers.common import build_once, train
from .helpers.deployables import SHAPE, metadata
from .helpers.device import OPTION, find_device
from .helpers.report import EVIL, Page, without_digests

# Results are the same to the bit only with the same number of threads, in this process and in those it starts.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)
os.environ.pop("COLUMNS", None)  # a width that workers of pytest-xdist may inherit would fold tables and sentences

# The key that signs runs is kept here, not among the user's files; the workers of pytest-xdist inherit the place.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="coterie-state-")


def pytest_configure() -> None:
    """Refuse a device that is not here before any test runs; on a GPU, ask for kernels that repeat to the bit."""
    try:
        device = find_device()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if device.type != "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.allow_tf32 = False


@pytest.hookimpl(trylast=True)  # of the tests that are left when others are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of few tests first: these are long, and one that came last would leave a core idle."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: tests[item.path])


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The device to test on: COTERIE_TEST_DEVICE."""
    return find_device()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def example() -> Tensor:
    return torch.randn(4, 3, 8, 8)


@pytest.fixture(scope="session")
def pcl_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to ship: trained well enough that a mistake of the file shows in its labels."""
    return build_once(tmp_path_factory, "pcl_run", lambda out: train(out, "--method", "PCL"))


@pytest.fixture(scope="session")
def shipped(pcl_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports away from their run: a student and an ensemble, calibrated."""
    from coterie.deploy.export import export_run

    def export(folder: Path) -> None:
        export_run(pcl_run, "onnx", "mean1", folder / "student.onnx", calibrate=True)
        export_run(pcl_run, "onnx", "ensemble", folder / "ensemble.onnx", calibrate=True)
        export_run(pcl_run, "safetensors", "mean1", folder / "student.safetensors")

    return build_once(tmp_path_factory, "shipped", export)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to report on: Baseline and PCL with two seeds each, really trained for three epochs."""
    from coterie.config.options import from_options
    from coterie.training.loop import train_recipe

    data = {"class_path": "tests.helpers.report.hostile", "init_args": {"limit": 10}}

    def train_all(root: Path) -> None:
        for method, seed in product(("Baseline", "PCL"), (0, 1)):
            options = {"model": "resnet8", "epochs": 3, "batch": 50, "data": data, "method": method, "seed": seed}
            train_recipe(from_options({**options, **OPTION}), root / f"{method}-{seed}")

    return build_once(tmp_path_factory, "trained", train_all)


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """The trained runs, to change: their records have no digests, as those of earlier versions."""
    runs = Path(shutil.copytree(trained, tmp_path / "runs"))
    for file in runs.glob("*/metrics.jsonl"):
        file.write_text(without_digests(file.read_text()))
    return runs


@pytest.fixture(scope="session")
def shown(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of the trained runs."""
    from coterie.report import page

    folder = build_once(
        tmp_path_factory,
        "page",
        lambda folder: page.write_report([trained], folder / "report.html", f"Title {EVIL}"),
    )
    return Page((folder / "report.html").read_text())


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A network in every format of export, as it should be."""
    from coterie import models
    from coterie.deploy.formats import make_writer

    def export(folder: Path) -> None:
        network = models.factory("resnet8", 4, 1)().eval()
        for kind in ("safetensors", "onnx", "pt2"):
            write = make_writer(network, torch.randn(2, *SHAPE), kind)  # type: ignore[arg-type]
            write(folder / f"good.{kind}", metadata("resnet8", 4, SHAPE))

    folder = build_once(tmp_path_factory, "good", export)
    return {kind: folder / f"good.{kind}" for kind in ("safetensors", "onnx", "pt2")}
