"""The study as data: regimes, rows, primary comparisons, CutMix's probabilities, and the order of its jobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..experiments.job import Job, Options
from .cells import ResultCell
from .protocols import CIFAR, Protocol, Setting
from .rows import NO_TEACHERS, TableRow, method_row

PROBABILITIES = (0.25, 0.5, 1.0)
"""CutMix's probabilities that screening tries for each row."""
SCREENING_SEEDS = range(100, 102)
"""Seeds of the screening: none of the study's."""
HELD_OUT = 1000
"""Training images of each class that screening judges by; no row trains with them."""
EMA_EPOCHS = 2.5
"""Epochs that the averages look back, as in `mini`; the paper's 1,000 steps are 2.56 epochs."""
EVALUATIONS = 10
"""Evaluations of each run, whatever its length."""


@dataclass(frozen=True)
class Comparison:
    """A difference in error between two rows, stated before the first run of `row`."""

    row: str
    reference: str
    family: str = "Primary comparisons"
    """The comparisons that Holm's method adjusts p for together."""

    @property
    def name(self) -> str:
        return f"{self.row} - {self.reference}"


@dataclass(frozen=True)
class Study(Protocol):
    """A regime: a protocol with planned seeds and comparisons that are tested, by family."""

    primary: tuple[Comparison, ...] = ()

    @property
    def primary_rows(self) -> set[str]:
        """The rows of the first family, which are trained first."""
        first = [pair for pair in self.primary if pair.family == Comparison.family]
        return {row for pair in first for row in (pair.row, pair.reference)}


CIFAR_ROWS = (
    method_row("alone", "Baseline"),
    method_row("alone, 4x epochs", "Baseline", "alone", longer=4),
    method_row("CutMix", "Baseline", "alone", cutmix=True),
    method_row("CutMix, 2x epochs", "Baseline", "CutMix", cutmix=True, longer=2),
    method_row("CutMix, 4x epochs", "Baseline", "CutMix", cutmix=True, longer=4),
    method_row("ONE", "ONE", "alone"),
    method_row("DML", "DML", "alone"),
    method_row("KDCL", "KDCL", "alone"),
    method_row("PCL", "PCL", "alone"),
    method_row("ONE + CutMix", "ONE", "CutMix", cutmix=True),
    method_row("KDCL + CutMix", "KDCL", "CutMix", cutmix=True),
    method_row("PCL + CutMix", "PCL", "CutMix", cutmix=True),
    # At a third more a step, these cost as much as 2x epochs of the plain network.
    method_row("OwnMean, 1.5x epochs", "OwnMean", "PCL", longer=1.5),
    method_row("OwnMean + CutMix, 1.5x epochs", "OwnMean", "CutMix, 2x epochs", cutmix=True, longer=1.5),
)
OURS = tuple(row.name for row in CIFAR_ROWS if row.method == "OwnMean")


def _rows(*names: str) -> tuple[TableRow, ...]:
    return tuple(row for row in CIFAR_ROWS if row.name in names)


FASHION_ROWS = _rows(
    *("alone", "CutMix", "CutMix, 2x epochs", "CutMix, 4x epochs", "KDCL", "PCL", "KDCL + CutMix", "PCL + CutMix"),
    *OURS,
)
RICH_ROWS = _rows("alone", "alone, 4x epochs", "KDCL", "PCL")

# What PCL and KDCL are made of: each row changes one thing of its reference.
SPLIT_ROWS = (
    *_rows("alone"),
    method_row("alone + EMA", "Baseline", "alone", "averaging", predictor="mean1"),
    method_row("alone, 3 views", "Baseline", "alone", "views", views=3),
    method_row("PCL without distillation", "PCL", "alone", "branches and their ensemble's loss", **NO_TEACHERS),
    method_row(
        "PCL, ensemble teacher alone",
        "PCL",
        "PCL without distillation",
        "distillation from the ensemble",
        peer_teacher="none",
    ),
    method_row("PCL", "PCL", "PCL, ensemble teacher alone", "distillation from mean teachers"),
    method_row(
        "PCL, mutual", "PCL", "PCL", "without averaging: peers teach each other directly", peer_teacher="mutual"
    ),
    method_row("PCL, one view", "PCL", "PCL", "without a view for each peer", input_augmentation=False),
    method_row("PCL, no ramp-up", "PCL", "PCL", "without ramp-up", ramp_up=0),
    method_row("KDCL, mean of all", "KDCL", "alone", "distillation between whole networks", teacher="mean"),
    method_row("KDCL", "KDCL", "KDCL, mean of all", "choice of the teacher by the label"),
)

PRIMARY = (
    Comparison("PCL", "alone"),
    Comparison("PCL", "alone, 4x epochs"),  # equal cost
    Comparison("KDCL", "PCL"),
    Comparison("PCL + CutMix", "CutMix"),
    Comparison("PCL + CutMix", "CutMix, 4x epochs"),  # equal cost
    Comparison("KDCL + CutMix", "CutMix"),
)
"""The primary comparisons; nothing is added to them later."""
COMPARISONS_OF_OURS = tuple(
    Comparison(row, reference, "Comparisons of OwnMean")
    for row, reference in (
        (OURS[0], "PCL"),
        (OURS[1], "CutMix"),
        (OURS[1], "CutMix, 2x epochs"),  # equal cost
    )
)
"""Stated during the search, before the first run of OwnMean in the study."""

MIXING: dict[str, dict[str, float | None]] = {
    "cifar": {
        "CutMix": 0.5,
        "CutMix, 2x epochs": 1.0,
        "CutMix, 4x epochs": 1.0,
        "ONE + CutMix": 1.0,
        "KDCL + CutMix": 0.25,
        "PCL + CutMix": 0.5,
        "OwnMean + CutMix, 1.5x epochs": None,
    },
    "fashion": {
        "CutMix": 0.25,
        "CutMix, 2x epochs": None,
        "CutMix, 4x epochs": 0.5,
        "KDCL + CutMix": 0.25,
        "PCL + CutMix": 0.5,
        "OwnMean + CutMix, 1.5x epochs": None,
    },
}
"""CutMix's probability of each row, as `coterie reproduce screening` chose it; None: not screened yet."""


def _options(epochs: int, data: str, size: int, limit: int) -> Options:
    return {
        **CIFAR,
        "epochs": epochs,
        "evaluate_every": epochs // EVALUATIONS,
        "ema_horizon": EMA_EPOCHS / epochs,
        "data": data,
        "data.size": size,
        "data.limit": limit,
        "data.limit_seed": "seed",
        "model": "resnet8",
    }


def regime(
    name: str,
    title: str,
    options: Options,
    rows: tuple[TableRow, ...],
    seeds: int,
    primary: Sequence[Comparison] = (),
    mixing: Mapping[str, float | None] | None = None,
    split: tuple[TableRow, ...] = (),
) -> Study:
    """Return a regime with those of the primary comparisons that its rows allow; rows with CutMix are screened."""
    setting = Setting(title, ("", ""), options)  # none of the paper's
    held_out = replace(
        setting,
        title=f"{title}, judged on unused training images",
        options={**options, "data.val_limit": HELD_OUT},
    )
    probabilities, names = mixing or {}, {row.name for row in rows}
    by_experiment = {
        "study": tuple(_in_regime(row, options, probabilities.get(row.name)) for row in rows),
        "screening": tuple(
            _in_regime(row, options, probability) for row in rows if row.mixed for probability in PROBABILITIES
        ),
        "split": split,
    }
    return Study(
        name,
        {name: (held_out if name == "screening" else setting,) for name, rows in by_experiment.items() if rows},
        by_experiment,
        title,
        {"study": range(seeds), "screening": SCREENING_SEEDS, "split": range(5)},
        tuple(pair for pair in primary if {pair.row, pair.reference} <= names),
    )


def _in_regime(row: TableRow, options: Options, probability: float | None) -> TableRow:
    """Return a row with its probability of CutMix; longer ones keep the number of evaluations."""
    own = dict(row.options)
    if row.longer > 1:
        own["evaluate_every"] = math.ceil(options["evaluate_every"] * row.longer)
    if row.mixed:
        own["mix.probability"] = probability
    return replace(row, options=own)


CIFAR_STUDY = regime(
    "cifar",
    "CIFAR-10 at 16x16, 250 images a class drawn by the seed, ResNet8, 150 epochs",
    _options(150, "cifar10", 16, 250),
    CIFAR_ROWS,
    seeds=8,
    primary=PRIMARY + COMPARISONS_OF_OURS,
    mixing=MIXING["cifar"],
    split=SPLIT_ROWS,
)
FASHION_STUDY = regime(
    "fashion",
    "Fashion-MNIST at 14x14, 250 images a class drawn by the seed, ResNet8, 150 epochs",
    _options(150, "fashion_mnist", 14, 250),
    FASHION_ROWS,
    seeds=8,
    primary=PRIMARY + COMPARISONS_OF_OURS,
    mixing=MIXING["fashion"],
)
# Three seeds cannot show much; this regime is there to see where peers may not pay, and has no primary comparison.
RICH_STUDY = regime(
    "rich",
    "CIFAR-10 at 16x16, 2,500 images a class drawn by the seed, ResNet8, 60 epochs",
    _options(60, "cifar10", 16, 2500),
    RICH_ROWS,
    seeds=3,
)

STUDIES = {protocol.name: protocol for protocol in (CIFAR_STUDY, FASHION_STUDY, RICH_STUDY)}


def training_order(protocol: Study, cells: Iterable[ResultCell]) -> list[Job]:
    """Return the jobs in the order of training: seed by seed over the primary rows, then over the others.

    Whenever it stops, the primary rows have complete seeds.
    """
    pairs = [(cell.row not in protocol.primary_rows, job) for cell in cells for job in cell.jobs]
    return [job for _, job in sorted(pairs, key=lambda pair: (pair[0], pair[1].seed))]
