"""Any `torch.utils.data.Dataset` by its import path: the example, torchvision's way, and what cannot be."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from coterie.cli.main import main
from coterie.data.inspection import CELL, contact_sheet
from coterie.data.wrapped import dataset
from coterie.errors import InputError
from tests.helpers.common import coterie, refused

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HERE = __name__


class BySplit(Dataset):
    """uint8 tensors; has no attribute with its labels, and calls its test split 'val'."""

    def __init__(self, split: str = "train", sizes: int = 12) -> None:
        if split not in ("train", "val"):
            raise ValueError(split)
        self.split, self.sizes = split, sizes

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int):
        if index == 13:
            raise OSError("disk on fire")
        generator = torch.Generator().manual_seed(index + 100 * (self.split == "val"))
        return torch.randint(
            0, 256, (3, self.sizes, self.sizes), dtype=torch.uint8, generator=generator
        ), index % 4


class Readable(BySplit):
    def __getitem__(self, index: int):
        return super().__getitem__(index if index != 13 else 0)[0], index % 4


class OwnViews(Readable):
    """Makes its own views: floats with a random shift."""

    def __getitem__(self, index: int):
        image, label = super().__getitem__(index)
        return image / 255 + torch.rand(1), label


class Elsewhere(Readable):
    """Draws from NumPy and from Python, as older transforms do."""

    def __getitem__(self, index: int):
        image, label = super().__getitem__(index)
        return image / 255 + np.random.rand() + random.random(), label


class Whole(Dataset):
    def __len__(self) -> int:
        return 3


class Given(Dataset):
    """Items that the tests put here, for both splits; with a few options that it takes or not."""

    items: list = []
    classes = np.array(["a", "b"])

    def __init__(self, train: bool = True, split: str = "") -> None:
        assert split in ("", "mine")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        return self.items[index]


class Endless(Dataset):
    def __init__(self, train: bool = True) -> None: ...


class Grey(Dataset):
    def __init__(self, train: bool = True) -> None:
        self.targets = torch.tensor([0, 1] * 5)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int):
        return Image.fromarray(np.full((8, 8), 20 * index, np.uint8)), int(self.targets[index])


def loaded(source: str, **options) -> dataset:
    data = dataset(source=f"{HERE}.{source}", **{"workers": 0, **options})
    data.load()
    return data


def test_splits_labels_and_views(capsys):
    data = loaded("Readable", options={"sizes": 16}, mean=[0.1, 0.2, 0.3], std=[0.5])
    assert (data.classes, data.shape, data.train_size, data.test_size) == (
        ["0", "1", "2", "3"],
        (3, 16, 16),
        20,
        20,
    )
    views, labels = data.views(np.arange(8), 3, 0, 0)
    assert labels.tolist() == [0, 1, 2, 3] * 2 and views[0].shape == (8, 3, 16, 16)
    assert not torch.equal(views[0], views[1])
    images, _ = next(data.test_batches(20))
    wanted = (Readable("val", 16)[3][0] / 255 - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / 0.5
    assert torch.allclose(images[3], wanted, atol=1e-5)
    # Each view is some crop of the image within a border of an eighth, perhaps mirrored.
    still = loaded("Readable", options={"sizes": 16}, mean=[0.1, 0.2, 0.3], std=[0.5], augment=[])
    plain = still.views(np.arange(8), 1, 0, 0)[0][0]
    black = -torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1) / 0.5
    padded = black.expand(8, 3, 20, 20).clone()
    padded[:, :, 2:-2, 2:-2] = plain
    crops = [padded[:, :, y : y + 16, x : x + 16] for y in range(5) for x in range(5)]
    every = torch.stack([c for crop in crops for c in (crop, crop.flip(-1))])
    assert ((every - views[2]).abs().flatten(2).amax(2) < 1e-5).any(0).all()
    held = loaded("Readable", val_fraction=0.2, limit=5)
    assert (held.train_size, len(held.labels["val"]), held.eval_split) == (16, 4, "val")


def test_a_set_that_makes_its_own_views_is_asked_for_each_and_seeded():
    data = loaded("OwnViews")
    state = torch.get_rng_state()
    views, _ = data.views(np.arange(6), 2, 1, 0)
    assert torch.equal(state, torch.get_rng_state()) and not torch.equal(views[0], views[1])
    assert torch.equal(data.views(np.array([4]), 2, 1, 0)[0][1][0], views[1][4])
    parallel = loaded("OwnViews", workers=2)
    ((streamed, _),) = parallel.stream([np.arange(6)], 2, 1, 0)
    assert torch.equal(streamed[1], views[1])


@pytest.mark.parametrize("words", [["data", "inspect"], ["train", "--out", "run", "--data"]])
def test_a_set_of_torchvision_is_named_in_a_fresh_process(words, tmp_path):
    """Where torchvision's wheel is built for CUDA and torch is not, its import alone would fail."""
    command = [sys.executable, "-m", "coterie", *words, "torchvision.datasets.FakeData"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 2 and "FakeData must take `train: bool = True`" in result.stderr, result.stderr


def test_grey_images_stay_grey():
    data = loaded("Grey")
    assert data.shape == (1, 8, 8) and data.classes == ["0", "1"] and data.original(3).mode == "L"


def image(mode: str = "RGB", size: int = 8) -> Image.Image:
    ramp = Image.fromarray(np.arange(size * size, dtype=np.uint8).reshape(size, size))
    return ramp.convert("RGB").quantize(16) if mode == "P" else ramp.convert(mode)


@pytest.mark.parametrize("mode", ["P", "PA", "1", "L", "I;16"])
def test_modes_of_pillow_are_colours_not_numbers(mode, monkeypatch):
    shown = image() if mode == "I;16" else image("P").convert(mode) if mode == "PA" else image(mode)
    if mode == "I;16":
        shown = Image.fromarray(np.asarray(shown)[..., 0].astype(np.uint16) * 256)
    monkeypatch.setattr(Given, "items", [(shown, i % 2) for i in range(6)])
    data = loaded("Given", mean=[0.0], std=[1.0])
    wanted = np.asarray(shown.convert("L") if mode != "I;16" else image("L")) / 255
    assert data.shape[0] == (3 if mode[0] == "P" else 1) and data.classes == ["a", "b"]
    assert np.allclose(next(data.test_batches(1))[0][0].mean(0), wanted, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_floats_of_any_size_become_what_networks_take(dtype, monkeypatch):
    monkeypatch.setattr(Given, "items", [(torch.rand(3, 8, 8).to(dtype), i % 2) for i in range(6)])
    data = loaded("Given", options={"split": "mine"})
    assert data.views(np.arange(4), 2, 0, 0)[0][0].dtype == next(data.test_batches(2))[0].dtype == torch.float32


def test_odd_items_are_skipped_and_leave_the_contact_sheet_whole(monkeypatch, capsys):
    items = [{"image": 1}, image(), image(size=9), image("L"), image(), image()]
    monkeypatch.setattr(Given, "items", [(item, i % 2) for i, item in enumerate(items)])
    data = loaded("Given")
    assert data.shape == (3, 8, 8)
    sheet = contact_sheet(data, views=2, images=6)
    assert sheet.height == 4 + 3 * (CELL + 16 + 4)  # three of the six
    said = capsys.readouterr().err
    assert "(3, 9, 9)" in said and "(1, 8, 8)" in said


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([({"image": 1}, 0)] * 3, r"gives no images \(dict is no image\): its items must be \(image, label\)"),
        ([(np.zeros((8, 8, 3), np.float32), 0)], r"\(ndarray of float32 and shape \(8, 8, 3\) is no image\)"),
        ([(torch.zeros(8, 8), 0)], r"gives no images \(a tensor of torch.float32 and shape \(8, 8\)"),
        ([(image(), "cat")], "has the label 'cat': labels must be the numbers of classes"),
        ([(image(), torch.tensor([0, 1]))], r"has the label tensor\(\[0, 1\]\): labels must be"),
        ([(image(), 1e30)], "has the label 1e\\+30: labels must be the numbers"),
        ([(image(), 0.7)], "has the label 0.7: labels must be the numbers"),
    ],
)
def test_items_that_are_no_examples_are_refused(items, message, monkeypatch):
    monkeypatch.setattr(Given, "items", items)
    with pytest.raises(InputError, match=message):
        loaded("Given")


@pytest.mark.parametrize(("train", "test"), [("floats", "uint8"), ("uint8", "floats")])
def test_training_and_test_images_of_two_kinds_are_refused(train, test):
    """Whether images are normalised follows the training images."""
    images = {"uint8": torch.full((10, 3, 8, 8), 3, dtype=torch.uint8), "floats": torch.zeros(10, 3, 8, 8)}
    labels = torch.arange(10) % 2
    with pytest.raises(InputError, match=f"are {train}, test images {test}: give both alike"):
        dataset.of((images[train], labels), (images[test], labels), workers=0).load()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_images_that_are_not_finite_are_named(value, capsys):
    images, labels = torch.zeros(10, 3, 8, 8), torch.arange(10) % 2
    images[3, 1, 2, 2] = value
    data = dataset.of((images, labels), (images, labels), workers=0)
    data.load()
    assert sum(len(batch) for batch, _ in data.test_batches(5)) == 9
    assert "test [3] (it holds values that are not finite)" in capsys.readouterr().err
    assert len(data.views(np.arange(10), 2, 0, 0)[1]) == 9
    strict = dataset.of((images, labels), (images, labels), workers=0, strict=True)
    strict.load()
    with pytest.raises(InputError, match=r"1 image cannot be read: .* train \[3\] \(it holds values"):
        strict.views(np.arange(10), 2, 0, 0)
    with pytest.raises(InputError, match="gives no images .it holds values that are not finite"):
        dataset.of((images + value, labels), (images, labels), workers=0).load()


def test_a_set_whose_views_are_not_finite_at_times_is_loaded():
    class AtTimes(OwnViews):
        def __getitem__(self, index: int):
            view, label = super().__getitem__(index)
            return view / (torch.rand(()) > 0.5), label

    for seed in range(4):
        data = dataset.of(AtTimes(), AtTimes(), workers=0, val_fraction=0.2)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            data.load()


def test_held_out_images_that_the_set_augments_are_told(capsys):
    loaded("OwnViews", val_fraction=0.2)
    assert "held-out images of tests.data.test_data_dataset.OwnViews are augmented" in capsys.readouterr().err
    loaded("OwnViews")
    loaded("Readable", val_fraction=0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{HERE}.Endless", "does not say how many items it has"),
        (f"{HERE}.Whole", "must take `train: bool = True` or `split"),
        (f"{HERE}.Nothing", "cannot be imported"),
        ("no_such_package.Set", "cannot be imported"),
        (f"{HERE}.BySplit", r"BySplit.*item 13.*disk on fire"),
    ],
)
def test_what_cannot_be_is_said(source, message):
    with pytest.raises(InputError, match=message):
        dataset(source=source, workers=0).load()
    with pytest.raises(InputError, match="failed: TypeError"):
        dataset(source=f"{HERE}.Readable", options={"colour": 1}).load()
    with pytest.raises(InputError, match="3 channels"):
        dataset(source=f"{HERE}.Readable", mean=[0.1, 0.2]).load()


def test_the_example_trains_evaluates_and_is_inspected(tmp_path, monkeypatch, capsys):
    path = f"{EXAMPLES}:{Path(__file__).resolve().parents[2] / 'src'}"
    run = tmp_path / "run"
    options = ["--model", "resnet8", "--epochs", 1, "--batch", 32, "--out", run]
    result = coterie("train", "--data", "own_data.Shapes", "--data.count", 66, *options, PYTHONPATH=path)
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == 1 and records[0]["split"] == "test"
    assert json.loads((run / "data.json").read_text())["images"]["train"] == 66
    assert "class_path: own_data.Shapes" in (run / "config.yaml").read_text()
    for command in (
        ["evaluate", run],
        ["report", run, "-o", tmp_path / "page.html"],
    ):  # they end, with their workers
        assert coterie(*command, PYTHONPATH=path).returncode == 0
    monkeypatch.syspath_prepend(str(EXAMPLES))
    main(["evaluate", str(run), "--json"])
    scores = json.loads(capsys.readouterr().out)
    assert scores["predictors"]["peer1"]["error"] == records[-1]["predictors"]["peer1"]["error"]
    sheet = tmp_path / "sheet.png"
    main(["data", "inspect", "own_data.Shapes", "--count", "30", "--sheet", str(sheet), "--json"])
    contents = json.loads(capsys.readouterr().out)
    assert contents["per_class"]["test"] == {"disc": 10, "square": 10, "triangle": 10} and sheet.is_file()
    sys.modules.pop("own_data", None)


def test_the_command_line_refuses_in_a_sentence(tmp_path):
    out = ["--out", str(tmp_path / "run")]
    for arguments, message in (
        (["--data", "collections.OrderedDict"], "is not a subclass of Data or Dataset"),
        (["--data", "no_such.Set"], "cannot be imported"),
        (["--data", "cifar"], "did you mean 'cifar10'?"),
        (["--data", "digits", "--data.limit", "0"], "at least 1"),
        (["--data", "digits", "--data.limitt", "1"], "did you mean '--data.limit'?"),
        (["--data", "digits", "--data.val_fraction", "2"], "`val_fraction` is a fraction"),
    ):
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            from coterie.cli.main import _run

            _run(["train", *arguments, *out])
    assert "Name what to inspect" in refused("data", "inspect")
    assert not (tmp_path / "run").exists()


def test_draws_from_numpy_and_python_are_a_function_of_the_seed_too() -> None:
    data = dataset(f"{HERE}.Elsewhere")
    data.load()

    def views(seed: int) -> list[torch.Tensor]:
        return data.views(np.arange(4), 2, seed, 0)[0]

    np.random.seed(1)
    random.seed(1)
    ours, again, other = views(0), views(0), views(7)
    after = np.random.rand(), random.random()
    assert all(map(torch.equal, ours, again)) and not torch.equal(ours[0], ours[1])
    assert not torch.equal(ours[0], other[0])
    np.random.seed(1)
    random.seed(1)
    assert after == (np.random.rand(), random.random())  # the training's numbers go on as if nothing was drawn
