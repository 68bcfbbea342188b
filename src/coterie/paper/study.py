"""The study as data: regimes, rows, primary comparisons, CutMix's probabilities, and the order of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import InputError
from ..experiments.job import Job, Options
from .numbers import Where
from .protocols import CIFAR, Protocol, Setting
from .tables import Cell, Row

EXPERIMENTS = ("study", "screening", "split")
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
NOT_IN_THE_PAPER: Where = ("", "")


@dataclass(frozen=True)
class StudyRow(Row):
    """A row, and the row that its difference is taken to."""

    reference: str = ""
    isolates: str = ""
    """What it changes of its reference, for the split."""

    @property
    def mixed(self) -> bool:
        return "mix" in self.options


@dataclass(frozen=True)
class Comparison:
    """A difference in error between two rows, stated before the first run."""

    row: str
    reference: str

    @property
    def name(self) -> str:
        return f"{self.row} - {self.reference}"


@dataclass(frozen=True)
class Study(Protocol):
    """A regime: its rows by experiment, how many seeds each has, and its primary comparisons.

    `mixing` has CutMix's probability for each row with CutMix, None until it is screened.
    """

    rows: Mapping[str, tuple[StudyRow, ...]] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    primary: tuple[Comparison, ...] = ()
    mixing: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def primary_rows(self) -> set[str]:
        return {row for comparison in self.primary for row in (comparison.row, comparison.reference)}


def _row(
    name: str, method: str, reference: str = "alone", cutmix: bool = False, longer: int = 1, **options: object
) -> StudyRow:
    method_options = {f"method.{key}": value for key, value in options.items()}
    mix = {"mix": "CutMix"} if cutmix else {}
    return StudyRow(name, method, {**method_options, **mix}, longer=longer, reference=reference)


def _split_row(name: str, method: str, reference: str, isolates: str, **options: object) -> StudyRow:
    method_options = {f"method.{key}": value for key, value in options.items()}
    return StudyRow(name, method, method_options, reference=reference, isolates=isolates)


ALONE = _row("alone", "Baseline", reference="")
CUTMIX = _row("CutMix", "Baseline", cutmix=True)
KDCL, PCL = _row("KDCL", "KDCL"), _row("PCL", "PCL")
ALONE_LONGER = _row("alone, 4x epochs", "Baseline", longer=4)
CUTMIX_LONGER = _row("CutMix, 4x epochs", "Baseline", "CutMix", cutmix=True, longer=4)
KDCL_CUTMIX = _row("KDCL + CutMix", "KDCL", "CutMix", cutmix=True)
PCL_CUTMIX = _row("PCL + CutMix", "PCL", "CutMix", cutmix=True)

# A method of our own gets its rows at the end of these tuples, and comparisons in a family of their own.
CIFAR_ROWS = (
    ALONE,
    ALONE_LONGER,
    CUTMIX,
    _row("CutMix, 2x epochs", "Baseline", "CutMix", cutmix=True, longer=2),
    CUTMIX_LONGER,
    _row("ONE", "ONE"),
    _row("DML", "DML"),
    KDCL,
    PCL,
    _row("ONE + CutMix", "ONE", "CutMix", cutmix=True),
    KDCL_CUTMIX,
    PCL_CUTMIX,
)
FASHION_ROWS = (ALONE, CUTMIX, CUTMIX_LONGER, KDCL, PCL, KDCL_CUTMIX, PCL_CUTMIX)
RICH_ROWS = (ALONE, ALONE_LONGER, KDCL, PCL)

# What PCL and KDCL are made of: each row changes one thing of its reference.
NO_TEACHER: dict[str, object] = {"distil_ensemble": False, "peer_teacher": "none"}
SPLIT_ROWS = (
    ALONE,
    StudyRow("alone + EMA", "Baseline", {}, "mean1", reference="alone", isolates="averaging"),
    _split_row("alone, 3 views", "Baseline", "alone", "views", views=3),
    _split_row("PCL without distillation", "PCL", "alone", "branches and their ensemble's loss", **NO_TEACHER),
    _split_row(
        "PCL, ensemble teacher alone",
        "PCL",
        "PCL without distillation",
        "distillation from the ensemble",
        peer_teacher="none",
    ),
    _split_row("PCL", "PCL", "PCL, ensemble teacher alone", "distillation from mean teachers"),
    _split_row(
        "PCL, mutual", "PCL", "PCL", "without averaging: peers teach each other directly", peer_teacher="mutual"
    ),
    _split_row("PCL, one view", "PCL", "PCL", "without a view for each peer", input_augmentation=False),
    _split_row("PCL, no ramp-up", "PCL", "PCL", "without ramp-up", ramp_up=0),
    _split_row("KDCL, mean of all", "KDCL", "alone", "distillation between whole networks", teacher="mean"),
    _split_row("KDCL", "KDCL", "KDCL, mean of all", "choice of the teacher by the label"),
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

MIXING: dict[str, dict[str, float | None]] = {
    "cifar": {
        "CutMix": 0.5,
        "CutMix, 2x epochs": None,
        "CutMix, 4x epochs": 1.0,
        "ONE + CutMix": None,
        "KDCL + CutMix": 0.25,
        "PCL + CutMix": 0.5,
    },
    "fashion": {
        "CutMix": None,
        "CutMix, 4x epochs": None,
        "KDCL + CutMix": None,
        "PCL + CutMix": None,
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


def study(
    name: str,
    title: str,
    options: Options,
    rows: tuple[StudyRow, ...],
    seeds: int,
    primary: Sequence[Comparison] = (),
    mixing: Mapping[str, float | None] | None = None,
    split: tuple[StudyRow, ...] = (),
) -> Study:
    """A regime with those of the primary comparisons that its rows allow."""
    setting = Setting(title, NOT_IN_THE_PAPER, options)
    held_out = Setting(
        f"{title}, judged on unused training images",
        NOT_IN_THE_PAPER,
        {**options, "data.val_limit": HELD_OUT},
    )
    names = {row.name for row in rows}
    mixed = tuple(row for row in rows if row.mixed)
    screens = {"screening": (held_out,)} if mixed else {}
    return Study(
        name,
        {"study": (setting,), **screens, **({"split": (setting,)} if split else {})},
        controls=False,
        says=title,
        rows={"study": rows, "screening": mixed, "split": split},
        seeds={"study": seeds, "screening": len(SCREENING_SEEDS), "split": 5},
        primary=tuple(pair for pair in primary if {pair.row, pair.reference} <= names),
        mixing=mixing or {},
    )


CIFAR_STUDY = study(
    "cifar",
    "CIFAR-10 at 16x16, 250 images a class drawn by the seed, ResNet8, 150 epochs",
    _options(150, "cifar10", 16, 250),
    CIFAR_ROWS,
    seeds=8,
    primary=PRIMARY,
    mixing=MIXING["cifar"],
    split=SPLIT_ROWS,
)
FASHION_STUDY = study(
    "fashion",
    "Fashion-MNIST at 14x14, 250 images a class drawn by the seed, ResNet8, 150 epochs",
    _options(150, "fashion_mnist", 14, 250),
    FASHION_ROWS,
    seeds=8,
    primary=PRIMARY,
    mixing=MIXING["fashion"],
)
# Three seeds cannot show much; this regime is there to see where peers may not pay, and has no primary comparison.
RICH_STUDY = study(
    "rich",
    "CIFAR-10 at 16x16, 2,500 images a class drawn by the seed, ResNet8, 60 epochs",
    _options(60, "cifar10", 16, 2500),
    RICH_ROWS,
    seeds=3,
)

STUDIES = {protocol.name: protocol for protocol in (CIFAR_STUDY, FASHION_STUDY, RICH_STUDY)}


def cells(experiment: str, protocol: Study, seeds: int) -> list[Cell]:
    """All cells of the study, its screening or its split; screening has one for each row and probability."""
    planned = protocol.seeds[experiment]
    if seeds > planned:
        raise InputError(f"--seeds {seeds}: the plan of {experiment} by {protocol.name} has {planned} seeds.")
    first = SCREENING_SEEDS.start if experiment == "screening" else 0
    (setting,) = protocol.settings[experiment]
    return [
        Cell(
            row.name,
            setting,
            tuple(_job(row, setting, seed, probability) for seed in range(first, first + seeds)),
            row.predictor,
            None,
        )
        for row in protocol.rows[experiment]
        for probability in (PROBABILITIES if experiment == "screening" else (protocol.mixing.get(row.name),))
    ]


def _job(row: StudyRow, setting: Setting, seed: int, probability: float | None) -> Job:
    """A row's run. Longer rows keep the fractions of the schedule and the number of evaluations."""
    options = {**setting.options, "method": row.method, **row.options}
    for name in ("epochs", "evaluate_every"):
        options[name] *= row.longer
    if row.mixed:
        options["mix.probability"] = probability
    return Job(options, seed)


def probability_of(cell: Cell) -> float | None:
    value = cell.jobs[0].options.get("mix.probability")
    return None if value is None else float(value)


def unscreened(cells: Iterable[Cell]) -> list[str]:
    """The rows whose probability of CutMix has not been chosen yet."""
    return [cell.row for cell in cells if "mix" in cell.jobs[0].options and probability_of(cell) is None]


def require_screened(protocol: Study, cells: Iterable[Cell]) -> None:
    """Refuse to train rows without a probability of CutMix."""
    if rows := unscreened(cells):
        raise InputError(
            f"CutMix's probability is not chosen yet for {'; '.join(rows)}: run `coterie reproduce screening "
            f"--protocol {protocol.name}` and enter its choice in MIXING of paper/study.py."
        )


def queue(protocol: Study, cells: Iterable[Cell]) -> list[Job]:
    """The runs in the order of training: seed by seed over the primary rows, then over the others.

    Whenever it stops, the primary rows have complete seeds.
    """
    pairs = [(cell.row not in protocol.primary_rows, job) for cell in cells for job in cell.jobs]
    return [job for _, job in sorted(pairs, key=lambda pair: (pair[0], pair[1].seed))]
