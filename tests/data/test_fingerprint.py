"""A run is not continued with other data than it began with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.config.options import from_options
from coterie.data.digits import digits
from coterie.data.folder import folder
from coterie.data.table import table
from coterie.errors import InputError
from coterie.runs.directory import RunDirectory
from coterie.runs.evaluate_run import evaluate_run
from coterie.training.loop import train_recipe
from tests.helpers.photographs import photographs


def loaded(data):
    data.load()
    return data.fingerprint()


def changed(before, after):
    """The keys in which two fingerprints differ."""
    assert before.keys() == after.keys()
    return {key for key in before if before[key] != after[key]}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photographs(tmp_path / "photos", train=6, val=4)


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def test_the_same_files_have_the_same_fingerprint_wherever_they_are(photos):
    before = loaded(folder(root=str(photos), size=16))
    moved = photos.rename(photos.with_name("elsewhere"))
    assert changed(before, loaded(folder(root=str(moved), size=16))) == set()


def test_exchanged_classes_are_noticed(photos):
    before = loaded(folder(root=str(photos), size=16))
    swap(photos / "train/china", photos / "train/flower")
    after = loaded(folder(root=str(photos), size=16))
    assert {"files", "contents"} <= changed(before, after) and "images" not in changed(before, after)


def test_a_renamed_and_a_replaced_file_are_noticed(photos):
    before = loaded(folder(root=str(photos), size=16))
    file = photos / "train/china/002.jpg"
    renamed = file.rename(file.with_name("0020.jpg"))
    assert changed(before, loaded(folder(root=str(photos), size=16))) == {"files"}
    renamed.rename(file)
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(file)
    assert changed(before, loaded(folder(root=str(photos), size=16))) == {"files", "contents"}


def test_other_labels_in_a_table_are_noticed(photos):
    files = sorted(photos.rglob("train/*/*.jpg"))
    rows = [f"{file.relative_to(photos)},{file.parent.name}" for file in files]
    listed = photos / "labels.csv"
    listed.write_text("\n".join(["image,label", *rows]))
    before = loaded(table(root=str(photos), file=str(listed), size=16))
    rows[0] = rows[0].replace(",china", ",flower")
    rows[-1] = rows[-1].replace(",flower", ",china")
    listed.write_text("\n".join(["image,label", *rows]))
    assert "labels" in changed(before, loaded(table(root=str(photos), file=str(listed), size=16)))


def test_pixels_in_memory_are_noticed():
    class Brighter(digits):
        def read(self):
            pixels, labels, *test = super().read()
            return np.clip(pixels + 1, 0, 255).astype(np.uint8), labels, *test

    assert changed(loaded(digits()), loaded(Brighter())) == {"contents"}


def test_a_run_is_continued_with_its_own_data_alone(photos, tmp_path, monkeypatch):
    def recipe():
        data = {"class_path": "folder", "init_args": {"root": str(photos), "size": 16, "workers": 0}}
        options = {"method": "Baseline", "model": "resnet8", "data": data, "epochs": 2, "batch": 4}
        return from_options({**options, "checkpoint_every": "0s"})

    def crash(*arguments):
        raise InputError("crashed")

    out = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(InputError, match="crashed"):
        patch.setattr(RunDirectory, "log", crash)
        train_recipe(recipe(), out)
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.name != ".lock"}
    swap(photos / "train/china", photos / "train/flower")
    with pytest.raises(InputError, match=r"not that of .*data.json any more \(its contents differ\): put it back"):
        train_recipe(recipe(), out)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.name != ".lock"} == before
    swap(photos / "train/china", photos / "train/flower")
    train_recipe(recipe(), out)
    assert (out / "student.safetensors").is_file()


def test_scores_of_changed_data_are_named_and_not_kept(photos, tmp_path, capsys):
    data = {"class_path": "folder", "init_args": {"root": str(photos), "size": 16}}
    options = {"model": "resnet8", "data": data}
    train_recipe(from_options({**options, "method": "Baseline", "epochs": 1, "batch": 6}), tmp_path / "run")
    evaluate_run(tmp_path / "run")
    assert "The data is not that of" not in capsys.readouterr().err
    swap(photos / "val/china", photos / "val/flower")
    written = (tmp_path / "run/evaluation.json").read_bytes()
    evaluate_run(tmp_path / "run")
    assert "(its contents differ): these scores are of the data as it is now" in capsys.readouterr().err
    assert (tmp_path / "run/evaluation.json").read_bytes() == written
