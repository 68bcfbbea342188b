"""`table`: your own images and their labels in a CSV, TSV or Parquet file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, note, reason
from ..names import TABLES
from .batch import SplitName
from .pictures import PictureFiles, encode_names, unreadable_reasons
from .subset import Labels

__all__ = ["table"]

SEPARATORS = {".csv": ",", ".tsv": "\t"}
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")
SEPARATOR = ";"
"""Between the labels of an image that has several."""
MANY_CLASSES = 100
"""So many classes are taken for what they seem; more of them need two training images each, on average."""

Columns = dict[str, list[str]]


class table(PictureFiles):
    """Images named in a table with the columns `image`, `label` and perhaps `split` (train, val, test).

    Several labels of an image are separated by `;`: then the task is multi_label.

    With both `val` and `test`, training reports on `val` and `coterie evaluate` on `test`; with one of them, that
    is the test set; without, a fifth of each class is held out for test. Views are those of `folder`.

    Args:
        root: the folder of the table and of its images; an image's name may also be absolute.
        file: the table's name in there: .csv, .tsv or .parquet.
        size: width and height of a view.
    """

    def __init__(self, root: str = "data", file: str = "labels.csv", size: int = 224, **options: Any) -> None:
        super().__init__(root=root, size=size, **options)
        self.file = self.root / file

    @classmethod
    def options_for_path(cls, path: Path) -> dict[str, Any] | None:
        if path.suffix.lower() not in TABLES:
            return None
        return {"root": str(path.parent), "file": path.name}

    @property
    def title(self) -> str:
        return self.file.name

    def load(self) -> None:
        columns = read_columns(self.file)
        images, labels = columns["image"], [_names(cell) for cell in columns["label"]]
        self._check_rows(images, labels)
        words = columns.get("split", ["train"] * len(images))
        rows: dict[SplitName, list[int]] = {}
        for row, word in enumerate(words):
            split = next((split for split in SPLITS if split == word.lower()), None)
            if split is None:
                problem = f"the split '{word}'" if word else "no split"
                raise InputError(f"{images[row]} has {problem} in {self.file}: it is train, val or test.")
            rows.setdefault(split, []).append(row)
        if "train" not in rows:
            raise InputError(f"{self.file} has no image of the split train.")
        paths = [self.root / image for image in images]
        missing = [image for image, path in zip(images, paths, strict=True) if not path.exists()]
        if missing:
            raise InputError(
                f"{len(missing):,} of the {len(images):,} images of {self.file} are not there, the first is "
                f"{missing[0]}: names are relative to {self.root}."
            )
        reasons = unreadable_reasons(paths)
        self.bad_files = {str(path): why for path, why in zip(paths, reasons, strict=True) if why}
        self.report_unreadable(self.bad_files)
        readable = {split: [row for row in of_split if not reasons[row]] for split, of_split in rows.items()}
        self.files = encode_names(images)
        numbers = self._number_labels(labels, readable)
        splits = {split: np.array(of_split, np.int64) for split, of_split in readable.items() if of_split}
        self.assign_splits(numbers, splits, self.file)

    def _check_rows(self, images: Sequence[str], labels: Sequence[list[str]]) -> None:
        """Refuse a table whose rows are not one image and its labels each."""
        if not images:
            raise InputError(f"{self.file} has no rows.")
        if "" in images:
            raise InputError(f"Row {images.index('') + 1} of {self.file} names no image.")
        unlabelled = [image for image, label in zip(images, labels, strict=True) if not label]
        if unlabelled and self.task != "multi_label":
            count = f"{len(unlabelled):,} image" + ("s have" if len(unlabelled) > 1 else " has")
            raise InputError(
                f"{count} no label in {self.file}, the first is {unlabelled[0]}: label each, or say by `task` "
                "multi_label that an image may have none."
            )
        image, times = Counter(images).most_common(1)[0]
        if times > 1:
            raise InputError(
                f"{image} stands in {times} rows of {self.file}: give it one row, with '{SEPARATOR}' between its "
                "labels if it has several."
            )

    def _number_labels(self, labels: Sequence[list[str]], rows: dict[SplitName, list[int]]) -> Labels:
        """Name the classes, those of the training images, and return the class numbers of each image.

        Where images have several labels, or none, they are zeros and ones for each class.
        """
        if not rows["train"]:
            raise InputError(f"{self.file} names no training image that can be read.")
        names = {name for row in rows["train"] for name in labels[row]}
        if not names:
            raise InputError(f"No training image has a label in {self.file}.")
        if len(names) > max(MANY_CLASSES, len(rows["train"]) / 2):
            raise InputError(
                f"{self.file} has {len(names):,} different labels for {len(rows['train']):,} training images: is "
                "'label' the right column?"
            )
        numeric = all(name.isdecimal() for name in names)
        self.classes = sorted(names, key=lambda name: (int(name) if numeric else 0, name))
        for split, of_split in rows.items():
            unexpected = next((name for row in of_split for name in labels[row] if name not in names), None)
            if unexpected is not None:
                raise InputError(
                    f"{self.file} has a class '{unexpected}' in the split {split} that the training images do not "
                    "have."
                )
        numbers = {name: number for number, name in enumerate(self.classes)}
        several = sum(len(own) > 1 for own in labels)
        if not several and all(labels):
            return np.array([numbers.get(name, -1) for (name,) in labels], np.int64)
        if several and self.task == "auto":
            note(
                f"{self.file} has several labels for {several:,} of its {len(labels):,} images: the task is "
                "multi_label, a yes or no for each class."
            )
        hot = np.zeros((len(labels), len(numbers)), np.uint8)
        for row, own in enumerate(labels):
            hot[row, [numbers[name] for name in own if name in numbers]] = 1
        return hot


def _names(cell: str) -> list[str]:
    """Return the labels of a cell, each once, in their order."""
    return list(dict.fromkeys(name for part in cell.split(SEPARATOR) if (name := part.strip())))


def read_columns(file: Path) -> Columns:
    """Return the columns of a table that matter, as text without blanks around it."""
    if not file.is_file():
        raise InputError(f"There is no table {file}.")
    parquet = file.suffix.lower() == ".parquet"
    columns = _read_parquet(file) if parquet else _read_text(file, SEPARATORS.get(file.suffix.lower(), ","))
    if "label" in columns and "labels" in columns:
        raise InputError(f"{file} has a column 'label' and a column 'labels': rename the one that is not meant.")
    if "labels" in columns:
        columns["label"] = columns.pop("labels")
    for name in ("image", "label"):
        if name not in columns:
            raise InputError(
                f"{file} has no column '{name}': it has {', '.join(columns) or 'none'}, and needs image and label."
            )
    return columns


def _read_text(file: Path, separator: str) -> Columns:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            lines = [
                row for row in csv.reader(stream, delimiter=separator, strict=True) if any(map(str.strip, row))
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} cannot be read as a table ({reason(error)}).") from None
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    names = [name.strip().lower() for name in header]
    return {
        name: [row[column].strip() if column < len(row) else "" for row in rows]
        for column, name in enumerate(names)
    }


def _read_parquet(file: Path) -> Columns:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError:
        raise InputError(f"{file} needs pyarrow: pip install pyarrow, or save it as CSV.") from None
    try:
        content = read_table(file)
    except (OSError, ArrowException) as error:
        raise InputError(f"{file} cannot be read as a table ({reason(error)}).") from None
    return {
        name.strip().lower(): [_cell(value) for value in content.column(position).to_pylist()]
        for position, name in enumerate(content.column_names)
    }


def _cell(value: Any) -> str:
    """Return a value of a Parquet file as a CSV file would have it."""
    if value is None:
        return ""
    return SEPARATOR.join(map(str, value)) if isinstance(value, list) else str(value).strip()
