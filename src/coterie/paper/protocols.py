"""How the paper's experiments are run: `paper` to the letter, `mini` and `mini100` within reach of two cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..experiments.job import Options
from .numbers import PaperSetting
from .rows import PAPER_ROWS, ROWS_WITH_CONTROLS, TableRow

EXPERIMENTS = ("table1", "table2", "table3", "table4", "fig3", "fig4", "fig5")


@dataclass(frozen=True)
class Setting:
    """A network on a data set, and all that is common to the methods compared there."""

    title: str
    paper_setting: PaperSetting
    """The paper's setting whose numbers are compared with."""
    options: Options
    teacher: str = ""
    """KD's teacher network."""
    distillation: float = 1.0
    """lambda, the height of w(e)."""


@dataclass(frozen=True)
class Protocol:
    """Which settings and rows each table and figure has."""

    name: str
    settings: Mapping[str, tuple[Setting, ...]]
    rows: Mapping[str, tuple[TableRow, ...]]
    description: str = ""
    seeds: Mapping[str, range] = field(default_factory=dict)
    """The planned seeds; an experiment without a plan may have any number of them."""


# The paper's training in fractions as recipes state it: drops at 150 and 225 of 300 epochs
CIFAR: Options = {
    "epochs": 300,
    "batch": 128,
    "peers": 3,
    "optimizer.lr": 0.1,
    "optimizer.momentum": 0.9,
    "optimizer.nesterov": True,
    "optimizer.weight_decay": 5e-4,
    "schedule": "Steps",
    "schedule.at": [0.5, 0.75],
    "schedule.factor": 0.1,
    "ramp_up": 80 / 300,
    "ema_horizon": 1000 / (300 * 391),  # beta = 0.999
    "ema": True,  # raw and averaged weights are reported for every method
}

# Drops at 30 and 60 of 90 epochs, each of 10,010 steps.
IMAGENET: Options = {
    **CIFAR,
    "epochs": 90,
    "schedule.at": [1 / 3, 2 / 3],
    "ramp_up": 80 / 90,
    "ema_horizon": 1000 / (90 * 10010),
    "data": "folder",
    "model": "resnet18",  # it is cut before layer3
}

NETWORKS = {
    "ResNet32": "resnet32",
    "ResNet110": "resnet110",
    "VGG16": "vgg16",
    "DenseNet40-12": "densenet40_12",
    "WRN20-8": "wrn20_8",
    "ResNeXt29-2x64d": "resnext29_2x64d",
}


def _cifar(data: str, network: str) -> Setting:
    options = {**CIFAR, "data": data.lower().replace("-", ""), "model": NETWORKS[network]}
    return Setting(f"{data}, {network}", (data, network), options, teacher="resnet110")


_TABLE1 = (
    *(_cifar(data, network) for data in ("CIFAR-10", "CIFAR-100") for network in NETWORKS),
    Setting("ImageNet, ResNet18", ("ImageNet", "ResNet18"), IMAGENET, distillation=0.1),
)
_COMPONENTS = (_cifar("CIFAR-100", "ResNet110"),)

PAPER = Protocol(
    "paper",
    {
        "table1": _TABLE1,
        "table2": _COMPONENTS,
        "table3": (_cifar("CIFAR-10", "ResNet110"), _cifar("CIFAR-100", "ResNet110")),
        "table4": (_cifar("CIFAR-10", "ResNet32"), _cifar("CIFAR-100", "ResNet32")),
        "fig3": _COMPONENTS,
        "fig4": _COMPONENTS,
        "fig5": _COMPONENTS,
    },
    PAPER_ROWS,
    "the paper's own networks, data and schedule",
)


def _small(name: str, setting: Setting, description: str) -> Protocol:
    """One setting for every table and figure, with the controls."""
    return Protocol(name, dict.fromkeys(EXPERIMENTS, (setting,)), ROWS_WITH_CONTROLS, description)


# The EMA looks back 2.56 epochs, as in the paper: 50 of 6,000 steps, beta = 0.98. There are four test images to a
# training image: an evaluation after every epoch would take longer than the training.
_MINI: Options = {
    **CIFAR,
    "ema_horizon": 1 / 120,
    "evaluate_every": 10,
    "data": "cifar10",
    "data.size": 16,
    "data.limit": 250,
    "model": "resnet8",
}
_MINI100: Options = {**_MINI, "data": "cifar100", "data.limit": 50, "model": "resnet14"}

MINI = _small(
    "mini",
    Setting("CIFAR-10 at 16x16, 250 images a class, ResNet8", ("CIFAR-10", "ResNet32"), _MINI, "resnet20"),
    "CIFAR-10 at 16x16, 250 training images a class, resnet8, the paper's 300 epochs",
)
MINI100 = _small(
    "mini100",
    Setting("CIFAR-100 at 16x16, 50 images a class, ResNet14", ("CIFAR-100", "ResNet32"), _MINI100, "resnet32"),
    "CIFAR-100 at 16x16, 50 training images a class, resnet14, the paper's 300 epochs",
)
SMOKE = _small(
    "smoke",
    Setting("CIFAR-10 at 16x16, 3 epochs, ResNet8", ("CIFAR-10", "ResNet32"), {**_MINI, "epochs": 3}, "resnet20"),
    "mini with 3 epochs, to see that everything runs",
)

PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, MINI, MINI100, SMOKE)}
