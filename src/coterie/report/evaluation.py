"""What a run's evaluation.json says: costs, calibration, classes, the most confident mistakes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..metrics.seeds import Spread
from ..runs.reader import Record, Result
from .content import Picture
from .groups import Group, best, reference, settings

SHOWN = 4
"""So many recipes have their calibration and mistakes shown; the Baselines and the best come first."""


@dataclass
class Network:
    """What a predictor costs where it is used; latency is the median for one image where it was evaluated."""

    parameters: int
    macs: int
    latency_ms: float


@dataclass
class Evaluation:
    """What the page shows of an evaluation.json; empty where there is none that can be read."""

    step_macs: float | None = None
    plain_macs: float | None = None
    """Of a training step of its network alone, as `step_macs` is of the method's."""
    train_size: int = 0
    networks: dict[str, Network] = field(default_factory=dict)
    tested: int = 0
    error: float | None = None
    bins: list[tuple[float, float, int]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    """As `Scores.per_class` has them, those that are missed most first."""
    mistakes: list[Picture] = field(default_factory=list)


def read_evaluation(run: Path) -> Evaluation:
    """Read a run's evaluation.json."""
    try:
        content = json.loads((run / "evaluation.json").read_text())
        predictors, deployed = content["predictors"], content["predictors"][content["deployed"]]
        classes = [row for row in deployed["per_class"] if row["images"]]
        return Evaluation(
            step_macs=float(content["training_macs"]),
            plain_macs=float(content["plain_training_macs"]),
            train_size=int(content["train_images"]),
            networks={
                name: Network(int(s["parameters"]), int(s["macs"]), float(s["latency_ms"]))
                for name, s in predictors.items()
                if "latency_ms" in s
            },
            tested=int(content["images"]),
            error=float(deployed["error"]),
            bins=[(float(confidence), float(accuracy), int(n)) for confidence, accuracy, n in deployed["bins"]],
            classes=sorted(classes, key=lambda row: -row["error"]),
            mistakes=[_picture(mistake) for mistake in content["mistakes"]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Evaluation()


def _picture(mistake: dict[str, Any]) -> Picture:
    sure = 100 * mistake["confidence"]
    caption = f"{mistake['label']}, taken for {mistake['guess']} ({sure:.1f} %)"
    return Picture(f"data:image/png;base64,{mistake['png']}", caption)


def seconds(records: Sequence[Record]) -> float:
    """Add up the training by the clock, without evaluation."""
    return sum(float(record["time"].get("train", float("nan"))) for record in records)


@dataclass
class Entry:
    """A recipe's runs, and the evaluation of the first of them that has one; never of the best."""

    group: Group
    run: Result
    evaluation: Evaluation

    @classmethod
    def of(cls, group: Group) -> Entry:
        runs = group.counted or group.runs
        run = next((run for run in runs if (run.path / "evaluation.json").is_file()), runs[0])
        return cls(group, run, read_evaluation(run.path))

    @property
    def epoch_macs(self) -> float | None:
        """Multiply-adds of one epoch of training."""
        step = self.evaluation.step_macs
        return None if step is None else step * self.evaluation.train_size

    @property
    def total_macs(self) -> float | None:
        epochs = self.group.epochs
        return None if self.epoch_macs is None or not epochs else self.epoch_macs * epochs

    @property
    def planned_macs(self) -> float | None:
        """Of the whole training, also while it goes on."""
        each, asked = self.epoch_macs, self.group.asked
        return each * asked if each is not None and asked else self.total_macs

    @property
    def network(self) -> Network | None:
        """The one that is deployed."""
        return self.evaluation.networks.get(self.group.deployed or "")

    @property
    def seconds(self) -> Spread:
        return Spread.of(seconds(run.records) for run in self.group.counted)


def shown(entries: Sequence[Entry]) -> list[Entry]:
    """Choose the recipes whose calibration and mistakes are shown."""
    groups = [entry.group for entry in entries]
    first = [g for same in settings(groups).values() for g in (reference(same), best(same)) if g is not None]
    ordered = list({id(g): g for g in [*first, *groups]}.values())[:SHOWN]
    return [entry for entry in entries if any(entry.group is g for g in ordered)]


def by_settings(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries of each network and data set."""
    return {
        setting: [entry for entry in entries if any(entry.group is g for g in same)]
        for setting, same in settings([entry.group for entry in entries]).items()
    }
