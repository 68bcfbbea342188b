"""The cells of a table: a row in a setting, the jobs trained for it, the paper's number; and their selection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..experiments.job import Job
from .numbers import PAPER_NUMBERS, PaperNumber, PaperSetting
from .protocols import Protocol, Setting
from .rows import RAMPED, TableRow


@dataclass(frozen=True)
class ResultCell:
    """One number of a table: the mean over its jobs, one per seed, of one predictor's error."""

    table_row: TableRow
    setting: Setting
    jobs: tuple[Job, ...]
    reference: str
    """The row that it is compared with; none if empty."""
    paper: PaperNumber | None
    paper_setting: str
    """The paper's setting that is compared with; empty in the study."""

    @property
    def row(self) -> str:
        return self.table_row.name

    @property
    def predictor(self) -> str | None:
        """None is the one that the method deploys."""
        return self.table_row.predictor

    @property
    def description(self) -> str:
        """What `--only` searches."""
        options = self.jobs[0].options
        return f"{self.row} | {self.setting.title} | {options['method']} {options['model']} {options['data']}"

    @property
    def probability(self) -> float | None:
        """CutMix's probability; None without CutMix, or if it has not been chosen yet."""
        return self.table_row.options.get("mix.probability")

    @property
    def unscreened(self) -> bool:
        """Whether CutMix's probability has not been chosen yet."""
        return self.table_row.mixed and self.probability is None


def table_cells(experiment: str, protocol: Protocol, seeds: int) -> list[ResultCell]:
    """Return all cells of a table or figure, or of the study, setting by setting."""
    planned = protocol.seeds.get(experiment, range(seeds))
    if seeds > len(planned):
        raise InputError(f"--seeds {seeds}: the plan of {experiment} by {protocol.name} has {len(planned)} seeds.")
    cells, rows = [], protocol.rows[experiment]
    for setting in protocol.settings[experiment]:
        compared = paper_setting(experiment, setting)
        numbers = PAPER_NUMBERS[experiment][compared] if compared else {}
        for row in rows:
            jobs = tuple(_job(row, setting, seed) for seed in planned[:seeds])
            reference = rows[0].name if compared else row.reference
            paper = numbers.get(row.name)
            cells.append(ResultCell(row, setting, jobs, reference, paper, ", ".join(compared or ())))
    return cells


def paper_setting(experiment: str, setting: Setting) -> PaperSetting | None:
    """Return the paper's setting to compare with: Tables 2 and 3 and the figures have ResNet-110 alone."""
    data, _ = setting.paper_setting
    candidates = (setting.paper_setting, (data, "ResNet110"), ("CIFAR-100", "ResNet110"))
    return next((each for each in candidates if each in PAPER_NUMBERS.get(experiment, {})), None)


def _job(row: TableRow, setting: Setting, seed: int) -> Job:
    options = {**setting.options, "method": row.method, **row.options}
    options["epochs"] = round(options["epochs"] * row.longer)
    if setting.distillation != 1.0 and row.method in RAMPED:
        options["method.weight"] = setting.distillation
    if not row.taught:
        return Job(options, seed)
    teacher = {**setting.options, "method": "Baseline", "model": setting.teacher}
    return Job(options, seed, needs=Job(teacher, seed=0))  # one teacher teaches all seeds, as is usual


def select_cells(cells: Sequence[ResultCell], only: str) -> list[ResultCell]:
    """Return the cells that have all these comma-separated words, or those after a semicolon, and so on.

    A word that is the name of a row means that row alone; any other is looked for in row, setting, method,
    network and data, a number as a whole: cifar10 is not found in cifar100.
    """
    rows = {cell.row.lower() for cell in cells}

    def has(cell: ResultCell, word: str) -> bool:
        if word in rows:
            return cell.row.lower() == word
        start, end = (r"(?<!\d)" if word[0].isdecimal() else "", r"(?!\d)" if word[-1].isdecimal() else "")
        return bool(re.search(start + re.escape(word) + end, cell.description.lower()))

    def fits(cell: ResultCell, part: str) -> bool:
        words = [part] if part in rows else re.split(r"\s*,\s*", part)  # rows have commas in their names
        return all(has(cell, word) for word in words if word)

    parts = [part.strip() for part in only.lower().split(";") if part.strip(" ,")]
    chosen = [cell for cell in cells if any(fits(cell, part) for part in parts)]
    if not chosen:
        names = "; ".join(dict.fromkeys(cell.row for cell in cells))
        settings = "; ".join(dict.fromkeys(cell.setting.title for cell in cells))
        raise InputError(f"--only '{only}' matches nothing; rows: {names}. Settings: {settings}.")
    return chosen
