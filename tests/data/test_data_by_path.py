"""`--data PATH`: a plain folder, a table of labels, a set saved by `datasets`, all divided alike."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from coterie import train
from coterie.data import find_by_path, find_data_set
from coterie.data.base import Data
from coterie.data.folder import folder
from coterie.data.huggingface import huggingface
from coterie.data.table import table
from coterie.errors import InputError
from tests.helpers.common import picture, printed, refused
from tests.helpers.photographs import CLASSES, photographs

SMALL = ["--data.size", 32, "--data.workers", 0, "--model", "resnet8", "--method", "Baseline"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real photographs in a folder per class, without splits: 12 and 8."""
    split = photographs(tmp_path_factory.mktemp("photographs") / "split", train=12, val=0)
    root = split.rename(split.with_name("pieces")) / "train"
    for name in ("008", "009", "010", "011"):
        (root / "flower" / f"{name}.jpg").unlink()
    return root


def rows_of(root: Path) -> list[list[str]]:
    files = sorted(root.rglob("*.jpg"))
    return [[f"{file.parent.name}/{file.name}", file.parent.name] for file in files]


def write_table(file: Path, rows: Sequence[Sequence[str]], header: Sequence[str] = ("image", "label")) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter="\t" if file.suffix == ".tsv" else ",").writerows([header, *rows])
    return file


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "photos"))


def loaded(path: Path, **options: object) -> Data:
    cls, preset = find_data_set(str(path))
    data = cls(**preset, **{"size": 16, "workers": 0, **options})
    data.load()
    return data


def test_a_plain_folder_is_divided_by_class_and_says_so(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = loaded(plain)
    assert isinstance(data, folder) and data.classes == list(CLASSES)
    assert np.bincount(data.labels["train"]).tolist() == [10, 6] and data.eval_split == "test"
    assert np.bincount(data.labels["test"]).tolist() == [2, 2]
    said = capsys.readouterr().err
    assert said == (
        f"coterie: {plain} has no test images: 4 of its 20 images, a fifth of each class, are held out for test, "
        "always the same.\n"
    )
    names = {split: {data.name(split, i) for i in range(len(data.labels[split]))} for split in ("train", "test")}
    assert not names["train"] & names["test"] and len(names["train"] | names["test"]) == 20
    for split in ("train", "test"):
        assert all(data.classes[data.labels[split][i]] in data.name(split, i) for i in range(4))
    again = loaded(plain, limit=2)  # the test images stay the same whatever is trained on
    assert {again.name("test", i) for i in range(again.test_size)} == names["test"] and again.train_size == 4
    held = loaded(plain, val_fraction=0.5)
    assert (held.train_size, len(held.labels["val"]), held.test_size) == (8, 8, 4)
    assert {held.name("val", i) for i in range(8)} <= names["train"]


def test_train_alone_is_divided_as_a_plain_folder(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    expected = loaded(copy)
    names = [Path(expected.name("test", i)).relative_to(copy) for i in range(4)]
    copy.rename(tmp_path / "set" / "train")
    data = loaded(tmp_path / "set")
    assert [Path(data.name("test", i)).relative_to(tmp_path / "set" / "train") for i in range(4)] == names


def test_a_class_of_one_image_is_trained_on_and_no_test_image_is_refused(tmp_path: Path) -> None:
    for name, count in (("a", 1), ("b", 2)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(count):
            picture(number).save(tmp_path / "set" / name / f"{number}.png")
    data = loaded(tmp_path / "set")
    assert data.labels["train"].tolist() == [0, 1] and data.labels["test"].tolist() == [1]
    (tmp_path / "set" / "b" / "1.png").unlink()
    with pytest.raises(InputError, match="has one image of each class: none can be held out for test"):
        loaded(tmp_path / "set")


def test_folder_table_and_saved_set_are_the_same_set(copy: Path, tmp_path: Path) -> None:
    """The same pictures in all forms: the same splits, views, test images and training."""
    rows = rows_of(copy)
    as_columns = {"image": [image for image, _ in rows], "label": [label for _, label in rows]}
    pyarrow.parquet.write_table(pyarrow.table(as_columns), copy / "labels.parquet")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    content = {"image": [str(copy / image) for image, _ in rows], "label": [label for _, label in rows]}
    datasets.Dataset.from_dict(content, features=features).save_to_disk(tmp_path / "saved")
    forms = {
        "labels.csv": write_table(
            copy / "labels.csv", [[*row, "x"] for row in rows], [" Image", "LABEL ", "more"]
        ),
        "labels.tsv": write_table(copy / "labels.tsv", [[str(copy / image), label] for image, label in rows]),
        "labels.parquet": copy / "labels.parquet",
        "saved": tmp_path / "saved",
    }
    expected = loaded(copy)
    views, labels = expected.views(np.arange(8), 2, seed=3, epoch=1)
    tests = torch.cat([images for images, _ in expected.test_batches(3)])
    for title, path in forms.items():
        data = loaded(path)
        assert isinstance(data, huggingface if title == "saved" else table) and data.title == title
        assert data.classes == expected.classes and data.preprocessing() == expected.preprocessing()
        for split in ("train", "test"):
            assert np.array_equal(data.labels[split], expected.labels[split])
        same, same_labels = data.views(np.arange(8), 2, seed=3, epoch=1)
        assert torch.equal(same_labels, labels) and all(map(torch.equal, same, views))
        assert torch.equal(torch.cat([images for images, _ in data.test_batches(3)]), tests)
    parallel = loaded(forms["saved"], workers=2)
    streamed = list(parallel.stream([np.arange(8)], 2, 3, 1))
    assert all(map(torch.equal, streamed[0][0], views))


def test_splits_of_a_table(copy: Path) -> None:
    rows = rows_of(copy)
    words = ["train", "Train", "val", "test"] * 5
    header = ("image", "label", "split")

    def table_of(translate: dict[str, str]) -> Data:
        split = [[*row, translate.get(word, word)] for row, word in zip(rows, words, strict=True)]
        return loaded(write_table(copy / "labels.csv", split, header))

    both = table_of({})
    assert (both.train_size, len(both.labels["val"]), both.test_size, both.eval_split) == (10, 5, 5, "val")
    assert [both.name("val", i).removeprefix(f"{copy}/") for i in range(5)] == [row[0] for row in rows[2::4]]
    for other in ("val", "test"):
        one = table_of({"val": other, "test": other})
        assert (one.train_size, one.test_size, one.eval_split) == (10, 10, "test")
    alone = table_of({"val": "train", "test": "train"})
    assert (alone.train_size, alone.test_size) == (16, 4)
    table_of({})
    with pytest.raises(InputError, match=r"labels.csv has both val and test: leave `val_fraction` away"):
        loaded(copy / "labels.csv", val_fraction=0.5)


def test_splits_and_columns_of_a_saved_set(copy: Path, tmp_path: Path) -> None:
    names = datasets.ClassLabel(names=list(CLASSES))
    rows = rows_of(copy)
    pictures = [str(copy / image) for image, _ in rows]
    content = {"photo": pictures, "what": [label for _, label in rows], "coarse": ["china"] * len(rows)}
    features = datasets.Features({"photo": datasets.Image(), "what": names, "coarse": names})
    whole = datasets.Dataset.from_dict(content, features=features)
    parts = {"train": range(0, 20, 2), "validation": range(1, 20, 4), "test": range(3, 20, 4)}
    root = tmp_path / "saved"

    def save(saved: dict[str, datasets.Dataset]) -> None:
        shutil.rmtree(root, ignore_errors=True)
        datasets.DatasetDict(saved).save_to_disk(root)

    save({name: whole.select(part) for name, part in parts.items()})
    data = loaded(root, label="what")
    assert (data.train_size, len(data.labels["val"]), data.test_size) == (10, 5, 5)
    assert data.labels["test"].tolist() == [CLASSES.index(rows[row][1]) for row in parts["test"]]
    assert np.array_equal(data.original(1, "val"), folder_image(copy / rows[5][0]))
    with pytest.raises(InputError, match="has the columns what, coarse of the type ClassLabel, and needs one"):
        loaded(root)
    with pytest.raises(InputError, match="has no column `photo` of the type ClassLabel"):
        loaded(root, label="photo")
    for saved, message in (
        ({"train": whole.select_columns(["what"])}, "has no column of the type Image, and needs one"),
        ({"train": whole.select_columns(["photo"])}, "has no column of the type ClassLabel, and needs one"),
        ({"train": whole, "extra": whole}, "has a split 'extra': it needs train"),
        ({"test": whole}, "has no split train"),
    ):
        save(saved)
        with pytest.raises(InputError, match=message):
            loaded(root)
    save({"train": whole})
    next((root / "train").glob("*.arrow")).write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read by `datasets`"):
        loaded(root)


def folder_image(file: Path) -> np.ndarray:
    from coterie.data.images import decode_image

    return np.asarray(decode_image(file))


@pytest.mark.parametrize("module", ["datasets", "pyarrow"])
def test_an_optional_library_that_is_absent_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dataset_dict.json").write_text("{}")
    (tmp_path / "labels.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path if module == "datasets" else tmp_path / "labels.parquet"
    assert f"pip install {module}" in refused("train", "--data", path, "--out", tmp_path / "run")


BAD_TABLES: list[tuple[list[str], list[list[str]], str]] = [
    (["image", "label"], [], "has no rows"),
    (["image", "class"], [["china/000.jpg", "china"]], "has no column 'label': it has image, class"),
    (["file", "label"], [["china/000.jpg", "china"]], "has no column 'image'"),
    (["image", "label", "labels"], [["china/000.jpg", "a", "a;b"]], "a column 'label' and a column 'labels'"),
    (["image", "label"], [["china/000.jpg", ""], ["china/001.jpg"]], "2 images have no label in .*000.jpg"),
    (["image", "label"], [["", "china"]], "Row 1 of .* names no image"),
    (["image", "label"], [["china/000.jpg", "a"], ["x.jpg", "b"]], "1 of the 2 images of .* the first is x.jpg"),
    (["image", "label"], [["china/000.jpg", "a"], ["china/000.jpg", "b"]], "000.jpg stands in 2 rows"),
    (
        ["image", "label", "split"],
        [["china/000.jpg", "a", "holdout"]],
        "has the split 'holdout' in .*train, val or",
    ),
    (["image", "label", "split"], [["china/000.jpg", "a"]], "has no split in"),
    (["image", "label", "split"], [["china/000.jpg", "a", "test"]], "has no image of the split train"),
    (
        ["image", "label", "split"],
        [["china/000.jpg", "a", "train"], ["china/001.jpg", "b", "val"]],
        "has a class 'b' in the split val that the training images do not have",
    ),
    (["image", "label"], [["china/000.jpg", "a"], ["china/001.jpg", "a"]], "labels.csv has one class alone, 'a'"),
    (["image", "label"], [["china/000.jpg", "a"], ["china/001.jpg", "b"]], "one image of each class"),
]


@pytest.mark.parametrize(("header", "rows", "message"), BAD_TABLES)
def test_bad_tables(
    header: list[str], rows: list[list[str]], message: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_table(copy / "labels.csv", rows, header)
    if "one class alone" in message:  # after the line about the images held out
        with pytest.raises(InputError, match=message):
            train(out=copy / "run", data=file, batch=1)
        return
    assert re.search(message, refused("train", "--data", file, "--out", copy / "run"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"", "has no column 'image': it has none"),
        ("x.csv", b"image;label\na.jpg;cat\n", "has no column 'image': it has image;label"),
        ("x.csv", b'image,label\n"a.jpg,cat\n', "cannot be read as a table"),
        ("x.csv", b"\xff\xfe\x00", "cannot be read as a table"),
        ("x.parquet", b"PAR1", "cannot be read as a table"),
    ],
)
def test_files_that_are_no_table(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert message in refused("train", "--data", tmp_path / name, "--out", tmp_path / "run")
    assert "There is no table" in refused("train", "--data", "none.tsv", "--out", tmp_path / "run")


def test_paths_that_are_no_set(tmp_path: Path, copy: Path) -> None:
    out = ["--out", tmp_path / "run"]
    assert "There is no folder or table ./none." in refused("train", "--data", "./none", *out)
    assert "has no folders" in refused("train", "--data", copy / "china", *out)
    (tmp_path / "only" / "val" / "a").mkdir(parents=True)
    assert "needs train/ and val/" in refused("train", f"--data={tmp_path / 'only'}", *out)
    assert find_by_path("digits") is None and find_by_path("package.MySet") is None
    with pytest.raises(InputError, match="photos has one class alone, 'china'"):
        shutil.rmtree(copy / "flower")
        train(out=tmp_path / "run", data=copy, batch=1)


def test_a_table_of_numbers_and_bad_pictures(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "china" / "000.jpg").write_bytes(b"no image")
    rows = [[image, str(number % 11)] for number, (image, _) in enumerate(rows_of(copy))]
    data = loaded(write_table(copy / "labels.csv", rows))
    assert data.classes == [str(number) for number in range(11)]  # by value, not 0, 1, 10, 2
    assert data.train_size + data.test_size == 19 and list(data.bad_files) == [str(copy / "china" / "000.jpg")]
    assert "1 image cannot be read and will be skipped" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot be read"):
        loaded(copy / "labels.csv", strict=True)


def test_ten_thousand_classes(tmp_path: Path) -> None:
    for number in range(2):
        picture(number, (9, 9)).save(tmp_path / f"{number}.png")
    rows = []
    for number in range(20_000):
        os.link(tmp_path / f"{number % 2}.png", tmp_path / f"{number}-.png")
        rows.append([f"{number}-.png", f"class {number // 2}"])
    data = loaded(write_table(tmp_path / "labels.csv", rows))
    assert len(data.classes) == data.train_size == data.test_size == 10_000
    assert data.views(np.arange(4), 1, 0, 0)[1].tolist() == data.labels["train"][:4].tolist()


@pytest.mark.parametrize("form", ["folder", "table", "saved"])
def test_a_run_by_path_is_continued_moved_and_evaluated(form: str, copy: Path, tmp_path: Path) -> None:
    path = copy
    rows = rows_of(copy)
    if form == "table":
        path = write_table(copy / "labels.csv", rows)
    elif form == "saved":
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
        )
        content = {"image": [str(copy / image) for image, _ in rows], "label": [label for _, label in rows]}
        datasets.Dataset.from_dict(content, features=features).save_to_disk(tmp_path / "saved")
        path = tmp_path / "saved"
    options = [*SMALL, "--epochs", 1, "--batch", 8, "--out", tmp_path / "run"]
    _, said = printed("train", "--data", path, *options)
    assert said.count("are held out for test") == 1
    kept = json.loads((tmp_path / "run" / "data.json").read_text())
    assert kept["classes"] == list(CLASSES) and kept["images"] == {"train": 16, "val": 0, "test": 4}
    moved = tmp_path / "elsewhere"
    (path if form == "saved" else copy).rename(moved)
    path = moved / "labels.csv" if form == "table" else moved
    out, _ = printed("train", f"--data={path}", *options)  # the same run: where its data is may change
    assert "trained" in out
    result = json.loads(printed("evaluate", tmp_path / "run", "--json")[0])
    assert result["data"] == path.name
    other = json.loads(printed("evaluate", tmp_path / "run", "--data", path, "--data.size", 32, "--json")[0])
    assert other["predictors"]["peer1"]["error"] == result["predictors"]["peer1"]["error"]


def test_python_takes_the_same_paths(copy: Path, tmp_path: Path) -> None:
    file = write_table(copy / "labels.csv", rows_of(copy))
    options = {"model": "resnet8", "method": "Baseline", "epochs": 1, "batch": 8}
    runs = [
        train(out=tmp_path / str(number), data=data, data_options={"size": 32, "workers": 0}, **options)
        for number, data in enumerate((copy, file, str(file)))
    ]
    assert len({json.dumps(run.metrics[-1]["terms"]) for run in runs}) == 1
    counts = Counter(run.config["data"]["class_path"] for run in runs)
    assert counts == {"coterie.data.folder.folder": 1, "coterie.data.table.table": 2}
