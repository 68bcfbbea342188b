"""A small table of pictures with several labels each, which a network can learn in a few epochs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = ["red", "green", "blue"]
SPLITS = {"train": 48, "val": 16, "test": 16}


def write_pictures(folder: Path, counts: dict[str, int] = SPLITS, none: bool = False) -> Path:
    """Write pictures with squares of the colours that are their labels, and the table; return the table.

    With `none`, pictures without a square and a label are among them.
    """
    random, rows = np.random.default_rng(0), []
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in counts.items():
        for i in range(count):
            pixels = random.integers(20, 70, (16, 16, 3), dtype=np.uint8)
            own = [c for c in range(3) if random.random() < 0.5]
            own = own if own or none else [i % 3]
            for c in own:
                top, left = random.integers(0, 8, 2)
                pixels[top : top + 8, left : left + 8, c] = 250
            Image.fromarray(pixels).save(folder / f"{split}{i}.png")
            rows.append([f"{split}{i}.png", ";".join(COLOURS[c] for c in own), split])
    return write_rows(folder / "labels.csv", rows)


def write_rows(
    file: Path, rows: Sequence[Sequence[str]], header: Sequence[str] = ("image", "labels", "split")
) -> Path:
    """Write a table."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return file
