"""A group: the runs of one recipe over its seeds, with their numbers; and which groups are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import mean
from typing import Any, TypeVar

from ..metrics.seeds import Difference, Spread, paired, paired_differences, seeds_won
from ..runs.reader import Record, Result, score
from .evaluation import Evaluation, Network, read_evaluation

RecordNumber = Callable[[Record], float | None]
"""Reads a number from a record, where it has it."""
K = TypeVar("K", bound=Hashable)


@dataclass(eq=False)
class Group:
    """The runs of one recipe that differ in their seeds alone."""

    label: str
    runs: list[Result]
    setting: str
    """Which network on which data: only groups that have this in common are compared."""
    is_reference: bool = False
    """The others are compared with it, as the user asked."""

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def counted(self) -> list[Result]:
        """The runs a final number is taken from: the finished ones; failing these, all that have begun."""
        return [r for r in self.runs if r.finished] or [r for r in self.runs if r.records]

    @property
    def finished(self) -> bool:
        return any(r.finished for r in self.runs)

    @property
    def planned_epochs(self) -> int | None:
        """How many epochs a run has when it is finished."""
        return self.runs[0].epochs

    @property
    def epochs(self) -> int:
        """How many were trained."""
        return max((run.trained for run in self.counted), default=0)

    @property
    def selected(self) -> bool:
        """Whether the weights of its runs were selected on held-out images."""
        return self.runs[0].select == "best"

    @property
    def stopped_early(self) -> bool:
        return any(run.stopped_early for run in self.counted)

    @property
    def _epochs_of_a_run(self) -> float:
        """How many were trained; where seeds stopped early, on average."""
        return mean(run.trained for run in self.counted) if self.stopped_early else self.epochs

    @property
    def deployed(self) -> str | None:
        """The network that `evaluated` deploys; with selected weights, other seeds may deploy another."""
        return str(self.evaluated.deployed_record["deployed"]) if self.counted else None

    @property
    def tested_on(self) -> str:
        """What its errors are counted on: the test images, unless the run watched images held out for that."""
        return "held-out images" if self.counted and self.counted[0].last.get("split") == "val" else "test images"

    def final(self, metric: str, predictor: str | None = None) -> Spread:
        """Return a score of the weights to deploy over the seeds; of the deployed predictor by default."""
        records = [run.deployed_record for run in self.counted]
        return Spread.of(score(record, predictor or record["deployed"], metric) for record in records)

    @property
    def several_labels(self) -> bool:
        """Whether images have several labels: its error is then 100 - mAP."""
        return self.final("map").count > 0

    def error(self, predictor: str | None = None) -> Spread:
        return self.final("error", predictor)

    def is_at_chance(self, predictor: str | None = None) -> bool:
        """Tell whether a predictor's mean error is no better than guessing, where there is an evaluation."""
        error = self.error(predictor)
        return error.count > 0 and self.evaluation.is_at_chance(error.mean)

    def by_seed(self) -> dict[Any, float]:
        """Return the deployed network's error by seed; of a seed that was run twice, the mean."""
        errors = _spreads((run.seed, deployed_error(run.deployed_record)) for run in self.counted)
        return {seed: error.mean for seed, error in errors.items()}

    def curve(self, value: RecordNumber) -> dict[int, Spread]:
        """Return a number after each epoch (1, 2, ...), over the seeds that got there."""
        spreads = _spreads((record["epoch"] + 1, value(record)) for run in self.runs for record in run.records)
        return dict(sorted(spreads.items()))

    def elapsed(self) -> dict[int, Spread]:
        """Return the seconds of training until each epoch has ended, over the seeds."""
        return _spreads(
            (record["epoch"] + 1, seconds)
            for run in self.runs
            for record, seconds in zip(run.records, accumulate(map(_seconds, run.records)), strict=True)
        )

    @property
    def seconds(self) -> Spread:
        """Training by the clock, without evaluation."""
        return Spread.of(sum(map(_seconds, run.records)) for run in self.counted)

    @cached_property
    def evaluated(self) -> Result:
        """The first run that has an evaluation.json; never the best."""
        runs = self.counted or self.runs
        return next((run for run in runs if (run.path / "evaluation.json").is_file()), runs[0])

    @cached_property
    def evaluation(self) -> Evaluation:
        return read_evaluation(self.evaluated.path)

    @property
    def network(self) -> Network | None:
        """The one that is deployed."""
        return self.evaluation.networks.get(self.deployed or "")

    @property
    def epoch_macs(self) -> float | None:
        """Multiply-adds of one epoch of training."""
        step = self.evaluation.step_macs
        return None if step is None else step * self.evaluation.train_size

    @property
    def total_macs(self) -> float | None:
        return self.epoch_macs * self._epochs_of_a_run if self.epoch_macs is not None and self.epochs else None

    @property
    def planned_macs(self) -> float | None:
        """Of the whole training, also while it goes on."""
        epochs = self._epochs_of_a_run if self.stopped_early else self.planned_epochs
        return self.epoch_macs * epochs if self.epoch_macs is not None and epochs else self.total_macs


def deployed_error(record: Record) -> float | None:
    return score(record, record["deployed"], "error")


def _seconds(record: Record) -> float:
    return float(record["time"].get("train", float("nan")))


def _spreads(values: Iterable[tuple[K, float | None]]) -> dict[K, Spread]:
    """Gather the values of each key; a key without any finite one is left out."""
    by_key: defaultdict[K, list[float | None]] = defaultdict(list)
    for key, value in values:
        by_key[key].append(value)
    return {key: spread for key, values in by_key.items() if (spread := Spread.of(values)).count}


def settings(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each network and data set: only these are compared with each other."""
    by_setting: dict[str, list[Group]] = {}
    for group in groups:
        by_setting.setdefault(group.setting, []).append(group)
    return by_setting


def reference(groups: Sequence[Group]) -> Group | None:
    """Return what the others are compared with: what was asked for, or else the Baseline, the plain one first."""
    if chosen := [g for g in groups if g.is_reference]:
        return chosen[0]
    scored = [g for g in groups if g.method == "Baseline" and g.error().count]
    return next((g for g in scored if g.label == "Baseline"), scored[0] if scored else None)


def error_difference(ours: Group, base: Group) -> Difference | None:
    """Return ours - base, in points of error; without a seed in common, of their means and over 0 pairs."""
    if not (ours.finished and base.finished and ours.error().count and base.error().count):
        return None
    over_seeds = paired(ours.by_seed(), base.by_seed())
    return over_seeds or Difference(ours.error().mean - base.error().mean, None, 0)


def has_one_seed(groups: Sequence[Group]) -> bool:
    """Tell whether no group has more than one run that counts."""
    return all(len(g.counted) <= 1 for g in groups)


def reference_name(groups: Sequence[Group]) -> str:
    """Return the label of the groups that the others are compared with; Baseline where there are several."""
    labels = {g.label for same in settings(groups).values() if (g := reference(same)) is not None}
    return labels.pop() if len(labels) == 1 else "Baseline"


def won_seeds(ours: Group, base: Group) -> tuple[int, int] | None:
    """Return with how many of the common seeds ours errs less; None before both have finished."""
    if not (ours.finished and base.finished):
        return None
    differences = paired_differences(ours.by_seed(), base.by_seed())
    return (seeds_won(differences), len(differences)) if differences else None


def best(groups: Sequence[Group]) -> Group | None:
    """Return the lowest error but for the reference, finished ones first; failing these, the reference."""
    base = reference(groups)
    scored = [g for g in groups if g.error().count]
    others = [g for g in scored if g is not base]
    finished = [g for g in others if g.finished]
    return min(finished or others or scored, key=lambda g: g.error().mean, default=None)


def compared(groups: Sequence[Group]) -> list[list[Group]]:
    """Return the settings that a report is about: those with something to compare, or all where none has."""
    every = list(settings(groups).values())
    return [same for same in every if len(same) > 1] or every
