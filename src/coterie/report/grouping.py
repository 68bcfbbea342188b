"""Runs become groups: the seeds of one recipe together, under a label that says what is unusual about it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from inspect import signature
from typing import Any

from ..config.recipe import RUNTIME_OPTIONS
from ..data import mix
from ..runs.reader import Result, class_name
from .groups import Group

SAME = frozenset(RUNTIME_OPTIONS | {"seed"}) - {"accumulate"}  # which batch-norm sees
"""Options in which the runs of one recipe may differ."""
LAST = ("method.ramp_up", "method.beta", "data.root")
"""Options that are named only where no other tells two recipes apart."""


def group_runs(results: Sequence[Result]) -> list[Group]:
    """Gather runs with the same recipe but for seed and place, and label them.

    The setting with most recipes comes first (a teacher that was trained for it has one of its own), and in
    each the Baseline; otherwise they stay in order.
    """
    by_recipe: dict[str, list[Result]] = {}
    for result in results:
        key = _key([_recipe(result), result.setting, result.data]) if result.config else str(result.path)
        by_recipe.setdefault(key, []).append(result)
    firsts = {key: runs[0] for key, runs in by_recipe.items()}
    # The setting tells selected weights from those of the last epoch: the two are never compared.
    data_keys = {key: _key([r.setting, _data(r), r.data]) for key, r in firsts.items()}
    settings = _distinct({data_keys[key]: (r.setting, _data(r, but=set())) for key, r in firsts.items()})
    groups = []
    for data_key, _ in Counter(data_keys.values()).most_common():
        same = {key: r for key, r in firsts.items() if data_keys[key] == data_key}
        labels = _distinct({k: (r.method if r.config else r.path.name, _recipe(r)) for k, r in same.items()})
        labelled = [Group(labels[key], by_recipe[key], settings[data_key]) for key in same]
        groups += sorted(labelled, key=lambda g: g.label != "Baseline")
    return groups


def _recipe(result: Result) -> dict[str, Any]:
    # An option that is newer than the run has its default.
    config = {"select": "last", "patience": None, **result.config, "mix": _mixing(result.config.get("mix"))}
    return {key: value for key, value in _flatten(config).items() if key not in SAME}


def _mixing(spec: Any) -> str | None:
    """Return `CutMix, probability 0.25`: of its options, those that are not the class's defaults."""
    if not isinstance(spec, dict):
        return None
    name, options = class_name(spec), spec.get("init_args") or {}
    parameters = signature(vars(mix).get(name, mix.Mix)).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    return ", ".join([name, *(f"{key} {value}" for key, value in options.items() if value != defaults.get(key))])


def _data(result: Result, but: Set[str] = SAME) -> dict[str, Any]:
    """Return what makes it other data, or another network of the same name."""
    options = _flatten({key: result.config.get(key) for key in ("data", "model_options")})
    return {key: value for key, value in options.items() if key not in but}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _distinct(things: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Label things that have a name and options: where several have one name, with what is unusual about each."""
    labels: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _ in things.values()):
        same = {key: options for key, (n, options) in things.items() if n == name}
        labels |= zip(same, _labels(name, list(same.values())), strict=True)
    return labels


def _labels(name: str, recipes: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for options in recipes for key in options)
    differing = [key for key in keys if len({str(options.get(key)) for options in recipes}) > 1]
    for chosen in ([key for key in differing if key not in LAST], differing):
        usual = {key: _usual([options.get(key) for options in recipes]) for key in chosen}
        labels = []
        for options in recipes:
            unusual = [k for k in chosen if k in options and _is_unusual(options[k], usual[k])]
            labels.append(", ".join([name, *(_describe(k, options[k]) for k in unusual)]))
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({i})" if labels.count(label) > 1 else label for i, label in enumerate(labels, 1)]


def _is_unusual(value: Any, usual: Any) -> bool:
    """Say whether to name a value; one that is off, or left to the default, only where it usually is not."""
    return value != usual and (usual is not None or value not in (None, False))


def _usual(values: list[Any]) -> Any:
    """Return the value that more have than any other, and that so needs no naming."""
    (value, count), *others = Counter(map(str, values)).most_common(2)
    return next(v for v in values if str(v) == value) if all(count > other for _, other in others) else None


def _describe(key: str, value: Any) -> str:
    if key == "mix" and value is not None:
        return str(value)
    name = key.rpartition(".")[2].replace("_", " ")
    words = {"True": name, "False": f"no {name}", "None": f"default {name}"}
    return words.get(str(value), f"{name} {value}")


def _flatten(value: Any, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    flat: dict[str, Any] = {}
    for name, part in value.items():
        inner = key if name in ("init_args", "class_path") else f"{key}.{name}" if key else str(name)
        flat |= _flatten(part, inner)
    return flat
