"""Fashion-MNIST's files: generated ones in every layout, damaged and foreign ones; real ones are `slow`."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.compat import import_torchvision
from coterie.data.fashion_mnist import PACKAGE_FOLDER, fashion_mnist
from coterie.deploy.pictures import prepare_picture
from coterie.errors import InputError
from tests.helpers.common import printed, refused

TRAIN, TEST = 40, 20
PIXELS = np.random.default_rng(0).integers(0, 256, (TRAIN + TEST, 28, 28), dtype=np.uint8)
LABELS = np.random.default_rng(1).permutation(np.tile(np.arange(10, dtype=np.uint8), 6))
CONTENTS = {
    "train-images-idx3-ubyte": struct.pack(">4I", 2051, TRAIN, 28, 28) + PIXELS[:TRAIN].tobytes(),
    "train-labels-idx1-ubyte": struct.pack(">2I", 2049, TRAIN) + LABELS[:TRAIN].tobytes(),
    "t10k-images-idx3-ubyte": struct.pack(">4I", 2051, TEST, 28, 28) + PIXELS[TRAIN:].tobytes(),
    "t10k-labels-idx1-ubyte": struct.pack(">2I", 2049, TEST) + LABELS[TRAIN:].tobytes(),
}
NAMES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


OFFICIAL = fashion_mnist.files


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """40 and 20 images are the release, and no package is installed."""
    files = {name: hashlib.md5(raw).hexdigest() for name, raw in CONTENTS.items()}
    monkeypatch.setattr(fashion_mnist, "files", files)
    monkeypatch.setattr("coterie.data.fashion_mnist.PACKAGE_FOLDER", tmp_path / "package")


@pytest.fixture
def package(tiny: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the real files, which are the release."""
    if not PACKAGE_FOLDER.is_dir():
        pytest.skip("the package dataset-fashion-mnist is not installed")
    monkeypatch.setattr(fashion_mnist, "files", OFFICIAL)
    monkeypatch.setattr("coterie.data.fashion_mnist.PACKAGE_FOLDER", PACKAGE_FOLDER)
    return PACKAGE_FOLDER


def write(folder: Path, packed: bool = True, **changed: bytes) -> Path:
    """The four files in a folder; `train_images=` and the like replace a file's content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in CONTENTS.items():
        raw = changed.get("_".join(name.split("-")[:2]), raw)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
        else:
            (folder / name).write_bytes(raw)
    return folder


def load(root: Path, **options: object) -> fashion_mnist:
    data = fashion_mnist(str(root), **options)
    data.load()
    return data


def stored(data: fashion_mnist, split: str) -> np.ndarray:
    return np.stack([np.asarray(data.original(i, split)) for i in range(len(data.labels[split]))])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["data", "data/fashion-mnist", "data/FashionMNIST/raw", "package"])
def test_it_is_read_packed_or_plain_from_every_place(tmp_path, place, packed):
    folder = write(tmp_path / place, packed)
    data = load(tmp_path / "data", augment=[])
    assert data.locate() == folder
    assert data.classes == NAMES and data.shape == (1, 28, 28)
    assert (stored(data, "train") == PIXELS[:TRAIN]).all() and (stored(data, "test") == PIXELS[TRAIN:]).all()
    assert data.labels["train"].tolist() == LABELS[:TRAIN].tolist()
    assert data.labels["test"].tolist() == LABELS[TRAIN:].tolist()
    view = data.views(np.arange(TRAIN), 1, 0, 0)[0][0].double()
    expected = (torch.from_numpy(PIXELS[:TRAIN]).double()[:, None] / 255 - 0.2860) / 0.3530
    assert torch.allclose(view, expected, atol=1e-5)


def test_files_under_the_root_come_before_the_packages(tmp_path):
    write(tmp_path / "package")
    ours = write(tmp_path / "data" / "FashionMNIST" / "raw")
    assert load(tmp_path / "data").locate() == ours
    assert load(tmp_path / "elsewhere").locate() == tmp_path / "package"


def test_a_plain_file_is_preferred_and_mapped(tmp_path):
    """torchvision leaves both behind."""
    write(tmp_path, packed=False)
    for name in CONTENTS:
        (tmp_path / f"{name}.gz").write_bytes(b"never read")
    pixels = load(tmp_path)._stored["train"]
    while isinstance(pixels, np.ndarray) and not isinstance(pixels, np.memmap):
        pixels = pixels.base
    assert isinstance(pixels, np.memmap)


def test_size_14_averages_two_by_two_and_deploys_as_it_was_trained(tmp_path):
    write(tmp_path)
    small, whole = load(tmp_path, size=14), load(tmp_path)
    blocks = PIXELS.astype(np.float64).reshape(-1, 14, 2, 14, 2).mean((2, 4))
    assert (stored(small, "train") == np.floor(blocks[:TRAIN] + 0.5)).all()
    assert (stored(small, "test") == np.floor(blocks[TRAIN:] + 0.5)).all()
    assert small.shape == (1, 14, 14) and (small.padding, whole.padding) == (2, 4)
    assert (small.preprocessing()["filter"], whole.preprocessing()["filter"]) == ("box", "bilinear")
    assert whole.augment.names == ["crop", "flip"]
    prepared = [prepare_picture(whole.original(i, "test"), small.preprocessing()) for i in range(TEST)]
    assert torch.equal(torch.stack(prepared), next(small.test_batches(100))[0])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        {"train_images": CONTENTS["train-images-idx3-ubyte"][:-1] + b"\x07"},
        {"t10k_labels": CONTENTS["t10k-labels-idx1-ubyte"][:-1] + b"\x7f"},
        {"train_images": CONTENTS["train-images-idx3-ubyte"][:-1]},
        {"train_labels": CONTENTS["train-labels-idx1-ubyte"] + b"\x01"},
        {"t10k_images": CONTENTS["train-images-idx3-ubyte"]},
        {"train_images": b""},
    ],
)
def test_damaged_and_foreign_files_are_refused_in_a_sentence(tmp_path, changed, packed):
    folder = write(tmp_path / "data", packed, **changed)
    message = refused("data", "fashion_mnist", "--root", folder)
    (name,) = (name for name in CONTENTS if "_".join(name.split("-")[:2]) in changed)
    assert str(folder / name) in message and "get it again" in message
    with pytest.raises(InputError, match="the MD5 of its content differs"):
        load(folder)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not gzip at all",
        gzip.compress(CONTENTS["train-images-idx3-ubyte"])[:-4],
        gzip.compress(CONTENTS["train-images-idx3-ubyte"])[:200],
        gzip.compress(CONTENTS["train-images-idx3-ubyte"])[:300] + b"\xff" * 3000,
        gzip.compress(CONTENTS["train-images-idx3-ubyte"] + bytes(10**7)),
    ],
)
def test_damaged_gzip_files_are_refused_in_a_sentence(tmp_path, raw):
    file = write(tmp_path) / "train-images-idx3-ubyte.gz"
    file.write_bytes(raw)
    assert str(file) in refused("data", "fashion_mnist", "--root", tmp_path)


def test_a_label_that_is_no_class_is_refused_even_with_the_right_checksum(tmp_path, monkeypatch):
    raw = CONTENTS["train-labels-idx1-ubyte"][:-1] + b"\x0a"
    name = "train-labels-idx1-ubyte"
    files = {**fashion_mnist.files, name: hashlib.md5(raw).hexdigest()}
    monkeypatch.setattr(fashion_mnist, "files", files)
    with pytest.raises(InputError, match="has a label 10"):
        load(write(tmp_path, train_labels=raw))


def test_without_the_files_both_ways_are_named(tmp_path):
    command = ["train", "--data", "fashion_mnist", "--data.root", tmp_path / "none", "--out", tmp_path / "run"]
    for message in (refused(*command), refused("data", "fashion_mnist", "--root", tmp_path / "none")):
        assert "apt-get install dataset-fashion-mnist" in message and "name it with --" in message
        assert str(tmp_path / "none") in message and all(name in message for name in CONTENTS)
    assert not (tmp_path / "run").exists()
    (write(tmp_path / "part") / "t10k-labels-idx1-ubyte.gz").unlink()
    message = refused("data", "fashion_mnist", "--root", tmp_path / "part")
    assert f"{tmp_path / 'part' / 't10k-labels-idx1-ubyte'} is missing" in message


def test_the_command_says_where_it_is_and_how_it_comes(tmp_path):
    out, _ = printed("data", "fashion_mnist", "--root", write(tmp_path / "data"))
    assert str(tmp_path / "data") in out and "every checksum is right" in out
    assert "apt-get install dataset-fashion-mnist" in out and "name it with --data.root" in out
    assert "fashion_mnist" in printed("data", "--help")[0]
    assert "did you mean 'fashion_mnist'?" in refused("data", "fashion_mnst")
    wrong = ["train", "--data", "fashion_mnits", "--out", tmp_path / "run"]
    assert "did you mean 'fashion_mnist'?" in refused(*wrong)


def test_it_trains_and_is_evaluated_and_inspected(tmp_path):
    root = write(tmp_path / "data")
    options = ["--model", "resnet8", "--method", "Baseline", "--batch", 20, "--epochs", 1]
    options += ["--data", "fashion_mnist"]
    options += ["--data.root", root, "--data.size", 14, "--data.limit", 2, "--data.limit_seed", "seed"]
    printed("train", *options, "--out", tmp_path / "run")
    (record,) = (json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    scores = json.loads(printed("evaluate", tmp_path / "run", "--json")[0])
    assert scores["predictors"]["peer1"]["error"] == record["predictors"]["peer1"]["error"]
    sheet = tmp_path / "sheet.png"
    flags = ["--root", root, "--size", 14, "--sheet", sheet, "--json"]
    counts = json.loads(printed("data", "inspect", "fashion_mnist", *flags)[0])
    assert counts["images"] == {"train": TRAIN, "test": TEST} and counts["view"] == [1, 14, 14] and sheet.is_file()


@pytest.mark.slow
def test_the_files_of_the_debian_package(package):
    data = fashion_mnist("no such folder")
    pixels, labels, test_pixels, test_labels = data.read()
    assert data.locate() == package
    assert pixels.shape == (60000, 1, 28, 28) and test_pixels.shape == (10000, 1, 28, 28)
    assert np.bincount(labels).tolist() == [6000] * 10 and np.bincount(test_labels).tolist() == [1000] * 10
    assert labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert abs(pixels.mean() / 255 - data.mean[0]) < 5e-5 and abs(pixels.std() / 255 - data.std[0]) < 5e-5
    # A class that anybody recognises: trousers are narrow, so that the image's sides are black.
    trousers = pixels[labels == data.classes.index("Trouser")].mean((0, 1))
    assert trousers[:, :4].max() < 10 < 100 < trousers[4:, 10:18].mean()


@pytest.mark.slow
def test_the_package_holds_the_official_release(package):
    """Debian took name and time out of the gzip headers: with them the files have the official MD5."""
    for name, md5 in import_torchvision("torchvision.datasets").FashionMNIST.resources:
        raw, time = (package / name).read_bytes(), 1504176606 if "train" in name else 1504176627
        stem = name.removesuffix(".gz").encode()
        header = raw[:3] + b"\x08" + struct.pack("<I", time) + raw[8:10] + stem + b"\0"
        assert hashlib.md5(header + raw[10:]).hexdigest() == md5


def test_the_names_are_those_of_torchvision():
    official = import_torchvision("torchvision.datasets").FashionMNIST
    assert list(fashion_mnist.names) == list(official.classes)
    assert [f"{name}.gz" for name in OFFICIAL] == [name for name, _ in official.resources]
