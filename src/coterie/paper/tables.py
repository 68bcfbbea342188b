"""Every table and figure as data: its cells, each a row in a setting, what is trained for it and what is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..experiments.job import Job
from .numbers import NUMBERS, Number
from .protocols import EXPERIMENTS, Protocol, Setting


@dataclass(frozen=True)
class Cell:
    """One number of a table: the mean over its jobs, one per seed, of one predictor's error."""

    row: str
    setting: Setting
    jobs: tuple[Job, ...]
    predictor: str | None
    """None is the one that the method deploys."""
    paper: Number | None

    def named(self) -> str:
        """What `--only` looks at."""
        options = self.jobs[0].options
        return f"{self.row} | {self.setting.title} | {options['method']} {options['model']} {options['data']}"


@dataclass(frozen=True)
class Row:
    """A method with its options, in any setting."""

    name: str
    method: str
    options: dict[str, Any]
    predictor: str | None = None
    taught: bool = False
    """Whether a teacher is trained first."""
    longer: int = 1
    """How many times the setting's epochs it trains."""


def _row(name: str, method: str, predictor: str | None = None, **options: Any) -> Row:
    return Row(name, method, {f"method.{key}": value for key, value in options.items()}, predictor)


RAMPED = ("CL", "ONE", "FFL", "OKDDip", "PCL")
"""The methods whose distillation is weighted by w(e), and with it by lambda."""

BASELINE, PCL, KD = _row("Baseline", "Baseline"), _row("PCL", "PCL"), Row("KD", "KD", {}, taught=True)
METHODS = [
    BASELINE,
    _row("Baseline + EMA", "Baseline", "mean1"),
    _row("DML", "DML"),
    _row("CL", "CL"),
    _row("ONE", "ONE"),
    _row("FFL-S", "FFL"),
    _row("OKDDip", "OKDDip"),
    _row("KDCL", "KDCL"),
    PCL,
]
CONTROLS = [
    _row("Baseline, 3 views", "Baseline", views=3),
    Row("Baseline, 4x epochs", "Baseline", {}, longer=4),  # PCL's training cost
    KD,
]
UNSHARED = Row("PCL, stem shared", "PCL", {"cut": "stage1"})  # what sharing most of the network costs
NOBODY: dict[str, Any] = {"distil_ensemble": False, "peer_teacher": "none"}
COMPONENTS = [
    _row("Backbone", "Baseline"),
    _row("+ L_ce^p", "PCL", ensemble="none", **NOBODY),
    _row("+ L_ce^t", "PCL", **NOBODY),
    _row("+ L_pe", "PCL", peer_teacher="none"),
    _row("+ L_pm (full)", "PCL"),
    _row("P.E. + mutual distillation", "PCL", peer_teacher="mutual"),
    _row("P.E. + traditional mean model", "PCL", peer_teacher="own_mean"),
    _row("logit sum + P.M.", "PCL", ensemble="sum"),
]
ENSEMBLES = [
    _row("ONE-E", "ONE", "ensemble"),
    _row("FFL", "FFL", "ensemble"),
    _row("OKDDip-E", "OKDDip", "ensemble", leader=False),
    _row("PCL-E", "PCL", "ensemble"),
]
PEERS = [
    _row("3 peers", "PCL"),
    Row("2 peers", "PCL", {"peers": 2}),
    Row("4 peers", "PCL", {"peers": 4}),
    _row("3 peers, w/o InAu", "PCL", input_augmentation=False),
]

ROWS: dict[str, Callable[[Protocol], list[Row]]] = {
    "table1": lambda protocol: [*METHODS[:2], *CONTROLS, *METHODS[2:], UNSHARED] if protocol.controls else METHODS,
    "table2": lambda protocol: COMPONENTS,
    "table3": lambda protocol: ENSEMBLES,
    "table4": lambda protocol: [BASELINE, KD, PCL],
    "fig3": lambda protocol: COMPONENTS[:5],
    "fig4": lambda protocol: ENSEMBLES,
    "fig5": lambda protocol: PEERS,
}
"""The first row of each is what the others are compared with."""


def cells(experiment: str, protocol: Protocol, seeds: int) -> list[Cell]:
    """All cells of a table or figure, setting by setting."""
    assert experiment in EXPERIMENTS
    return [
        Cell(
            row.name,
            setting,
            tuple(_job(row, setting, seed) for seed in range(seeds)),
            row.predictor,
            NUMBERS[experiment].get(_beside(experiment, setting), {}).get(row.name),
        )
        for setting in protocol.settings[experiment]
        for row in ROWS[experiment](protocol)
    ]


def _beside(experiment: str, setting: Setting) -> tuple[str, str]:
    """The paper's setting that is compared with: Tables 2 and 3 and the figures have ResNet-110 alone."""
    known = NUMBERS[experiment]
    data, _ = setting.beside
    return next(w for w in (setting.beside, (data, "ResNet110"), ("CIFAR-100", "ResNet110")) if w in known)


def beside(experiment: str, setting: Setting) -> str:
    return ", ".join(_beside(experiment, setting))


def _job(row: Row, setting: Setting, seed: int) -> Job:
    options = {**setting.options, "method": row.method, **row.options}
    options["epochs"] *= row.longer
    if setting.distillation != 1.0 and row.method in RAMPED:
        options["method.weight"] = setting.distillation
    if not row.taught:
        return Job(options, seed)
    teacher = {**setting.options, "method": "Baseline", "model": setting.teacher}
    return Job(options, seed, needs=Job(teacher, seed=0))  # one teacher teaches all seeds, as is usual


def select(found: list[Cell], only: str) -> list[Cell]:
    """The cells that have all these comma-separated words, or those after a semicolon, and so on.

    A word that is the name of a row means that row alone; any other is looked for in row, setting, method,
    network and data, a number as a whole: cifar10 is not found in cifar100.
    """
    rows = {cell.row.lower() for cell in found}

    def has(cell: Cell, word: str) -> bool:
        if word in rows:
            return cell.row.lower() == word
        start, end = (r"(?<!\d)" if word[0].isdecimal() else "", r"(?!\d)" if word[-1].isdecimal() else "")
        return bool(re.search(start + re.escape(word) + end, cell.named().lower()))

    def fits(cell: Cell, part: str) -> bool:
        words = [part] if part in rows else re.split(r"\s*,\s*", part)  # rows have commas in their names
        return all(has(cell, word) for word in words if word)

    parts = [part.strip() for part in only.lower().split(";") if part.strip(" ,")]
    chosen = [cell for cell in found if any(fits(cell, part) for part in parts)]
    if not chosen:
        named = "; ".join(dict.fromkeys(cell.row for cell in found))
        settings = "; ".join(dict.fromkeys(cell.setting.title for cell in found))
        raise InputError(f"--only '{only}' matches nothing; rows: {named}. Settings: {settings}.")
    return chosen
