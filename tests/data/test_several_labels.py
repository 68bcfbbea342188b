"""Tables and data sets with several labels an image: how they are read, divided, mixed and refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.config.options import from_options
from coterie.data import Data
from coterie.data.class_weights import read_class_weights
from coterie.data.inspection import inspect_data
from coterie.data.mix import CutMix, MixUp
from coterie.data.pictures import divide
from coterie.data.subset import Subset, counted_class
from coterie.data.table import table
from coterie.data.wrapped import dataset
from coterie.errors import InputError
from tests.helpers.common import picture, printed, refused
from tests.helpers.several_labels import write_pictures, write_rows


def loaded(file: Path, task: Any = "auto", **options: Any) -> Data:
    data = table(root=str(file.parent), file=file.name, size=16, workers=0, **options)
    data.task = task
    data.load()
    return data


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder of 30 pictures."""
    for i in range(30):
        picture(i).save(tmp_path / f"{i}.png")
    return tmp_path


def test_labels_are_zeros_and_ones(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["0.png", " dog ; cat", "train"], ["1.png", "cat;", "train"], ["2.png", "emu;cat;cat", "train"]]
    data = loaded(write_rows(pictures / "labels.csv", [*rows, ["3.png", "emu", "test"]]))
    assert data.classes == ["cat", "dog", "emu"] and data.several_labels
    assert data.labels["train"].tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 1]]
    assert data.labels["test"].tolist() == [[0, 0, 1]]
    assert "several labels for 2 of its 4 images: the task is multi_label" in capsys.readouterr().err
    _, labels = data.views(np.array([0, 2]), 1, 0, 0)
    assert labels.dtype == torch.float32 and labels.tolist() == [[1, 1, 0], [1, 0, 1]]
    assert [data.label_text(row) for row in labels] == ["cat, dog", "cat, emu"]
    assert inspect_data(data)["per_class"]["train"] == {"cat": 3, "dog": 1, "emu": 1}
    assert read_class_weights("balanced", data) == pytest.approx([5 / 9, 5 / 3, 5 / 3])


def test_a_table_of_one_label_each_stays_one(pictures: Path) -> None:
    """Also with the separator after a label, and where the task is that of several labels."""
    file = write_rows(pictures / "labels.csv", [[f"{i}.png", f"{'ab'[i % 2]};", "train"] for i in range(4)] * 1)
    file.write_text(file.read_text() + "4.png,a,test\n")
    for task in ("auto", "multi_label"):
        assert loaded(file, task).labels["train"].tolist() == [0, 1, 0, 1]


def test_images_without_a_label_need_the_task(pictures: Path) -> None:
    rows = [["0.png", "a;b", "train"], ["1.png", "", "train"], ["2.png", "a", "test"]]
    file = write_rows(pictures / "labels.csv", rows)
    said = refused("train", "--data", file, "--out", pictures / "run")
    assert "1 image has no label" in said and "1.png" in said and "multi_label" in said
    assert loaded(file, "multi_label").labels["train"].tolist() == [[1, 1], [0, 0]]
    assert (
        "2 classes" in printed("data", "inspect", file, "--task", "multi_label", "--sheet", pictures / "s.png")[0]
    )


BAD_TABLES: list[tuple[list[list[str]], list[str], str]] = [
    ([["0.png", "a;b"], ["0.png", "c"]], [], "0.png stands in 2 rows of .*: give it one row, with ';'"),
    ([["0.png", "a;b"], ["1.png", "b"]], ["--task", "single_label"], "labels.csv has several labels an image"),
    ([["0.png", ""], ["1.png", ""]], ["--task", "multi_label"], "No training image has a label"),
    ([["0.png", "a;b"], ["x.png", "b"]], [], "1 of the 3 images of .* the first is x.png"),
    ([["0.png", "a;b"], ["1.png", "b"]], ["--task", "multilabel"], "task"),
]


@pytest.mark.parametrize(("rows", "options", "message"), BAD_TABLES)
def test_bad_tables(rows: list[list[str]], options: list[str], message: str, pictures: Path) -> None:
    """Each is refused with one sentence, after the notes of what was decided."""
    header = ("image", "labels", "split")
    test = [] if "No training" in message else [["9.png", "b", "test"]]
    file = write_rows(pictures / "labels.csv", [[*row, "train"] for row in rows] + test, header)
    if "several labels an image" in message:  # after the note about the task
        with pytest.raises(InputError, match=message):
            from_options({"data": str(file), "task": "single_label"}).build()
        return
    assert re.search(message, refused("train", "--data", file, *options, "--out", pictures / "run"))
    assert not (pictures / "run").exists()


def test_ten_thousand_classes_are_another_column(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    for i in range(300):
        (tmp_path / f"{i}.png").hardlink_to(tmp_path / "a.png")
    file = write_rows(tmp_path / "labels.csv", [[f"{i}.png", f"name {i}"] for i in range(300)], ["image", "label"])
    said = refused("train", "--data", file, "--out", tmp_path / "run")
    assert "300 different labels for 300 training images: is 'label' the right column?" in said
    write_rows(file, [[f"{i}.png", f"name {i // 3}"] for i in range(300)], ["image", "label"])
    assert len(loaded(file).classes) == 100


def test_an_image_counts_for_its_rarest_label() -> None:
    labels = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0]], np.uint8)
    assert counted_class(labels).tolist() == [1, 0, 2, 2, 3, 1]  # 4, 3 and 2 images
    random = np.random.default_rng(0)
    labels = (random.random((200, 4)) < [0.05, 0.2, 0.5, 0.5]).astype(np.uint8)
    for train, held in (
        Subset(val_fraction=0.2).choose(labels, "abcd", None),
        divide(labels, np.arange(200), "abcd"),
    ):
        assert sorted([*train, *held]) == list(range(200)) and abs(len(held) - 40) <= 3
        rare = labels[:, 0].sum()
        assert labels[held, 0].sum() == pytest.approx(rare / 5, abs=1) and labels[train, 0].sum() >= 1
    train, _ = Subset(limit=3).choose(labels, "abcd", None)
    assert np.bincount(counted_class(labels)[train]).tolist() == [3, 3, 3, 3, 3]


def test_a_fifth_is_held_out_of_a_table_without_splits(tmp_path: Path) -> None:
    file = write_pictures(tmp_path, {"train": 40})
    file.write_text(file.read_text().replace(",train", "").replace(",split", ""))
    data = loaded(file)
    assert (data.train_size, data.test_size) == (32, 8) and data.labels["test"].shape == (8, 3)
    held = loaded(file, val_fraction=0.25)
    assert (held.train_size, held.eval_split, held.eval_size) == (24, "val", 8)


def test_pairs_of_arrays() -> None:
    images, hot = torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.tensor([[1, 0], [1, 1], [0, 0]] * 2)
    for labels in (hot, hot.float(), hot.bool(), hot.numpy()):
        data = dataset.of((images, labels), (images, labels), workers=0)
        data.task = "multi_label"
        data.load()
        assert data.classes == ["0", "1"] and data.labels["train"].tolist() == hot.tolist()
    data = dataset.of((images, hot), (images, hot))
    with pytest.raises(InputError, match="numbers of classes; zeros and ones .* `task` multi_label"):
        data.load()
    for labels, says in (
        (hot * 2, "zeros and ones"),
        (hot / 2, "zeros and ones"),
        (hot * 0, "No image of the train"),
    ):
        data = dataset.of((images, labels), (images, labels))
        data.task = "multi_label"
        with pytest.raises(InputError, match=says):
            data.load()
    data = dataset.of((images, hot), (images, torch.ones(6, 3)))
    data.task = "multi_label"
    with pytest.raises(InputError, match="labels of other shapes"):
        data.load()


@pytest.mark.parametrize("mix", [MixUp(probability=1.0), CutMix(probability=1.0)])
def test_mixing_averages_rows(mix: Any) -> None:
    """Channel i of image i is 1: the means of the mixed channels are the shares of all images."""
    views = torch.eye(8)[:, :, None, None].expand(8, 8, 16, 16)
    rows = (torch.rand(8, 5) < 0.5).float()
    rows[0] = 1
    (mixed,), targets = mix(views, rows, 5, seed=(1,), several=True)
    shares = mixed.mean((2, 3))
    assert 0 < shares.diagonal().min() < 1
    torch.testing.assert_close(targets, shares @ rows)
    with pytest.raises(InputError, match="sum to 1"):
        mix(views, rows, 5, seed=(1,))
