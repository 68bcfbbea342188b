"""Helpers of the tests of the report: a class named like an attack, the records, a page as a browser sees it."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.digits import digits
from coterie.report import grouping
from coterie.runs import reader

EVIL = "<script>alert(1)</script>"
OPTIONS = {"model": "resnet8", "epochs": 3, "batch": 50}


class hostile(digits):
    """Digits whose first class is named like an attack."""

    def load(self) -> None:
        super().load()
        self.classes = [EVIL, *self.classes[1:]]


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_digests(lines: str) -> str:
    """Return records as earlier versions wrote them, which may be changed without being taken for damaged."""
    return re.sub(r', "run": "\w+", "digest": "\w+"\}', "}", lines)


def over_seeds(trained: Path, method: str, value: Any) -> np.ndarray[Any, Any]:
    return np.array([[value(r) for r in records(trained / f"{method}-{seed}")] for seed in (0, 1)])


class Page(HTMLParser):
    """A page as a browser sees it: tables by caption, lines by figure title and name, and all text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, float | None]]]] = {}
        self.lines: dict[str, dict[str, tuple[list[float], list[str]]]] = {}
        self.tags: list[str] = []
        self.tiles: list[str] = []
        self.text, self.caption, self.figure, self.inside = "", "", "", ""
        self.value: str | None = None
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self.inside = tag
        if tag == "caption":
            self.caption = ""
        if tag == "h3":
            self.figure = ""
        if tag == "tr":
            self.tables.setdefault(self.caption, []).append([])
        if tag in ("td", "th"):
            self.value = attributes.get("data-value")
            self.tables[self.caption][-1].append(("", None if self.value is None else float(self.value)))
        if tag == "path" and "data-name" in attributes:
            x, y = (str(attributes[key]).split(" ") for key in ("data-x", "data-y"))
            self.lines.setdefault(self.figure, {})[str(attributes["data-name"])] = ([float(v) for v in x], y)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.inside == "dd":
            self.tiles.append(data)
        if self.inside == "caption":
            self.caption += data
        if self.inside == "h3":
            self.figure += data
        if self.inside in ("td", "button") and self.tables:
            row = self.tables[self.caption][-1]
            row[-1] = (row[-1][0] + data, row[-1][1])

    def column(self, table: str, name: str) -> list[tuple[str, float | None]]:
        head, *rows = next(rows for caption, rows in self.tables.items() if caption.split(",")[0] == table)
        i = [cell for cell, _ in head].index(name)
        return [row[i] for row in rows]


def last_error(run: Path) -> float:
    last = records(run)[-1]
    return float(last["predictors"][last["deployed"]]["error"])


def changed_copy(copied: Path, source: str, name: str, *changes: tuple[str, str]) -> None:
    """Copy a run and change its configuration."""
    shutil.copytree(copied / source, copied / name)
    config = (copied / name / "config.yaml").read_text()
    for old, new in changes:
        assert old in config
        config = config.replace(old, new)
    (copied / name / "config.yaml").write_text(config)


def group_labels(root: Path) -> list[tuple[str, str, int]]:
    run_groups = grouping.group_runs([reader.read_run(path) for path in reader.find_runs([root])])
    return [(g.setting, g.label, len(g.runs)) for g in run_groups]
