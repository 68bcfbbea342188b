"""Runs become groups, the seeds of one recipe together under a telling label; and who is compared with whom."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from inspect import signature
from typing import Any

from ..config.recipe import RUNTIME_OPTIONS
from ..data import mix
from ..metrics.seeds import Difference, Spread, paired
from ..runs.reader import Record, Result, class_name, score

SAME = frozenset(RUNTIME_OPTIONS | {"seed"}) - {"accumulate"}  # which batch-norm sees
"""Options in which the runs of one recipe may differ."""
LAST = ("method.ramp_up", "method.beta", "data.root")
"""Options that are named only where no other tells two recipes apart."""


@dataclass(eq=False)
class Group:
    """The runs of one recipe that differ in their seeds alone."""

    label: str
    runs: list[Result]
    setting: str
    """Which network on which data: only groups that have this in common are compared."""

    @property
    def method(self) -> str:
        return self.runs[0].method

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config

    @property
    def counted(self) -> list[Result]:
        """The runs a final number is taken from: the finished ones; failing these, all that have begun."""
        return [r for r in self.runs if r.finished] or [r for r in self.runs if r.records]

    @property
    def finished(self) -> bool:
        return any(r.finished for r in self.runs)

    @property
    def asked(self) -> int | None:
        """How many epochs a run has when it is finished."""
        return self.runs[0].epochs

    @property
    def epochs(self) -> int:
        """How many were trained."""
        return max((run.trained for run in self.counted), default=0)

    @property
    def deployed(self) -> str | None:
        return str(self.counted[0].last["deployed"]) if self.counted else None

    def final(self, value: Callable[[Record], float | None]) -> Spread:
        """A number of the last epoch, over the seeds."""
        return Spread.of(value(run.last) for run in self.counted)

    def error(self, predictor: str | None = None) -> Spread:
        """Of a predictor, by default the deployed one, in percent."""
        return self.final(lambda record: score(record, predictor or record["deployed"], "error"))

    def balanced_error(self, predictor: str | None = None) -> Spread:
        """The mean of the classes' errors; nothing where records are older than this number."""
        return self.final(lambda record: score(record, predictor or record["deployed"], "balanced_error"))

    def by_seed(self) -> dict[Any, float]:
        """The deployed network's error; of a seed that was run twice, the mean."""
        found = {run.seed: [r.last for r in self.counted if r.seed == run.seed] for run in self.counted}
        errors = {s: Spread.of(score(r, r["deployed"], "error") for r in last) for s, last in found.items()}
        return {seed: error.mean for seed, error in errors.items() if error.count}

    def predictors(self) -> list[str]:
        return list(dict.fromkeys(name for run in self.counted for name in run.last["predictors"]))

    def curve(self, value: Callable[[Record], float | None]) -> dict[int, Spread]:
        """The same number after each epoch (1, 2, ...), over the seeds that got there."""
        found: dict[int, list[float | None]] = {}
        for run in self.runs:
            for record in run.records:
                found.setdefault(record["epoch"] + 1, []).append(value(record))
        return {epoch: spread for epoch, values in sorted(found.items()) if (spread := Spread.of(values)).count}


def group(results: Sequence[Result]) -> list[Group]:
    """Runs with the same recipe but for seed and place together, with telling labels.

    The setting with most recipes comes first (a teacher that was trained for it has one of its own), and in
    each the Baseline; otherwise they stay in order.
    """
    together: dict[str, list[Result]] = {}
    for result in results:
        key = _key([_asked(result), result.data]) if result.config else str(result.path)
        together.setdefault(key, []).append(result)
    firsts = {key: runs[0] for key, runs in together.items()}
    data = {key: _key([r.setting, _data(r), r.data]) for key, r in firsts.items()}
    named = {data[key]: (r.setting, _data(r, but=set())) for key, r in firsts.items()}
    settings = _told_apart(named)
    order = [known for known, _ in Counter(data.values()).most_common()]
    groups = []
    for setting in order:
        here = {key: r for key, r in firsts.items() if data[key] == setting}
        labels = _told_apart({k: (r.method if r.config else r.path.name, _asked(r)) for k, r in here.items()})
        found = [Group(labels[key], together[key], settings[setting]) for key in here]
        groups += sorted(found, key=lambda g: g.label != "Baseline")
    return groups


def settings(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each network and data set: only these are compared with each other."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.setting, []).append(group)
    return found


def reference(groups: Sequence[Group]) -> Group | None:
    """What the others are compared with: the Baseline without anything unusual, or else the first."""
    scored = [g for g in groups if g.method == "Baseline" and g.error().count]
    return next((g for g in scored if g.label == "Baseline"), scored[0] if scored else None)


def difference(ours: Group, base: Group) -> Difference | None:
    """Ours - base, in points of error; where they have no seed in common, of their means and over 0 pairs."""
    if not (ours.finished and base.finished and ours.error().count and base.error().count):
        return None
    found = paired(ours.by_seed(), base.by_seed())
    return found or Difference(ours.error().mean - base.error().mean, None, 0)


def best(groups: Sequence[Group]) -> Group | None:
    """The lowest error but for the reference, finished ones first; failing these, the reference."""
    base = reference(groups)
    scored = [g for g in groups if g.error().count]
    others = [g for g in scored if g is not base]
    finished = [g for g in others if g.finished]
    return min(finished or others or scored, key=lambda g: g.error().mean, default=None)


def compared(groups: Sequence[Group]) -> list[list[Group]]:
    """The settings that a report is about: those with something to compare, or all where none has."""
    found = list(settings(groups).values())
    return [same for same in found if len(same) > 1] or found


def tested_on(g: Group) -> str:
    """What its errors are counted on: the test images, unless the run watched images held out for that."""
    return "held-out images" if g.counted and g.counted[0].last.get("split") == "val" else "test images"


def _asked(result: Result) -> dict[str, Any]:
    config = {**result.config, "mix": _mixing(result.config.get("mix"))}
    return {key: value for key, value in _flatten(config).items() if key not in SAME}


def _mixing(spec: Any) -> str | None:
    """`CutMix, probability 0.25`: of its options, those that are not the class's defaults."""
    if not isinstance(spec, dict):
        return None
    name, options = class_name(spec), spec.get("init_args") or {}
    parameters = signature(vars(mix).get(name, mix.Mix)).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    return ", ".join([name, *(f"{key} {value}" for key, value in options.items() if value != defaults.get(key))])


def _data(result: Result, but: Set[str] = SAME) -> dict[str, Any]:
    """What makes it other data, or another network of the same name."""
    found = _flatten({key: result.config.get(key) for key in ("data", "model_options")})
    return {key: value for key, value in found.items() if key not in but}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _told_apart(things: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Names of things with a name and options: where several have one name, with what is unusual about each."""
    labels: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _ in things.values()):
        same = {key: options for key, (n, options) in things.items() if n == name}
        labels |= zip(same, _labels(name, list(same.values())), strict=True)
    return labels


def _labels(name: str, options: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for some in options for key in some)
    differing = [key for key in keys if len({str(some.get(key)) for some in options}) > 1]
    for chosen in ([key for key in differing if key not in LAST], differing):
        usual = {key: _usual([some.get(key) for some in options]) for key in chosen}
        labels = [
            ", ".join([name, *(_say(k, some[k]) for k in chosen if k in some and _unusual(some[k], usual[k]))])
            for some in options
        ]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({i})" if labels.count(label) > 1 else label for i, label in enumerate(labels, 1)]


def _unusual(value: Any, usual: Any) -> bool:
    """What is off, or left to the default, needs saying only where it usually is not."""
    return value != usual and (usual is not None or value not in (None, False))


def _usual(values: list[Any]) -> Any:
    """What more have than anything else, and so needs no saying."""
    (value, count), *others = Counter(map(str, values)).most_common(2)
    return next(v for v in values if str(v) == value) if all(count > other for _, other in others) else None


def _say(key: str, value: Any) -> str:
    if key == "mix" and value is not None:
        return str(value)
    name = key.rpartition(".")[2].replace("_", " ")
    words = {"True": name, "False": f"no {name}", "None": f"default {name}"}
    return words.get(str(value), f"{name} {value}")


def _flatten(value: Any, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    found: dict[str, Any] = {}
    for name, part in value.items():
        inner = key if name in ("init_args", "class_path") else f"{key}.{name}" if key else str(name)
        found |= _flatten(part, inner)
    return found
