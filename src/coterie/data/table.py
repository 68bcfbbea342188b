"""`table`: your own images and their labels in a CSV, TSV or Parquet file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, reason
from ..names import TABLES
from .batch import SplitName
from .pictures import PictureFiles, encode_names, unreadable_reasons
from .sampler import Indices

__all__ = ["table"]

SEPARATORS = {".csv": ",", ".tsv": "\t"}
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")
SEVERAL_LABELS = "several labels an image are not supported yet"

Columns = dict[str, list[str]]


class table(PictureFiles):
    """Images named in a table with the columns `image`, `label` and perhaps `split` (train, val, test).

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
        images, labels = columns["image"], columns["label"]
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

    def _check_rows(self, images: Sequence[str], labels: Sequence[str]) -> None:
        """Refuse a table whose rows are not one image and one label each."""
        if not images:
            raise InputError(f"{self.file} has no rows.")
        if "" in images:
            raise InputError(f"Row {images.index('') + 1} of {self.file} names no image.")
        unlabelled = [image for image, label in zip(images, labels, strict=True) if not label]
        if unlabelled:
            count = f"{len(unlabelled):,} image" + ("s have" if len(unlabelled) > 1 else " has")
            raise InputError(f"{count} no label in {self.file}, the first is {unlabelled[0]}.")
        several = next((row for row, label in enumerate(labels) if ";" in label), None)
        if several is not None:
            raise InputError(
                f"{images[several]} has the labels '{labels[several]}' in {self.file}: {SEVERAL_LABELS}."
            )
        image, times = Counter(images).most_common(1)[0]
        if times > 1:
            raise InputError(f"{image} stands in {times} rows of {self.file}: {SEVERAL_LABELS}.")

    def _number_labels(self, labels: Sequence[str], rows: dict[SplitName, list[int]]) -> Indices:
        """Name the classes, those of the training images, and return each image's number of a class."""
        names = {labels[row] for row in rows["train"]}
        if not names:
            raise InputError(f"{self.file} names no training image that can be read.")
        numeric = all(name.isdecimal() for name in names)
        self.classes = sorted(names, key=lambda name: (int(name) if numeric else 0, name))
        for split, of_split in rows.items():
            unexpected = next((labels[row] for row in of_split if labels[row] not in names), None)
            if unexpected is not None:
                raise InputError(
                    f"{self.file} has a class '{unexpected}' in the split {split} that the training images do not "
                    "have."
                )
        numbers = {name: number for number, name in enumerate(self.classes)}
        return np.array([numbers.get(label, -1) for label in labels], np.int64)


def read_columns(file: Path) -> Columns:
    """Return the columns of a table that matter, as text without blanks around it."""
    if not file.is_file():
        raise InputError(f"There is no table {file}.")
    parquet = file.suffix.lower() == ".parquet"
    columns = _read_parquet(file) if parquet else _read_text(file, SEPARATORS.get(file.suffix.lower(), ","))
    if "label" not in columns and "labels" in columns:
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
    return ";".join(map(str, value)) if isinstance(value, list) else str(value).strip()
