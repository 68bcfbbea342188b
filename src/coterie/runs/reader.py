"""Find and read run directories, whatever state they are in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..config.specs import labels_in
from ..errors import InputError
from ..files import load_json, read_bytes, read_yaml
from .aside import ASIDE
from .records import NAME, RUN, decode_record, due_epochs
from .selection import SELECTED, Record, SelectName, deployed_record, early_stop_sentence, patience_is_over

FILES = ("config.yaml", "metrics.jsonl")
"""The files that make a directory a run."""
NAMED_BY = {"folder": "root", "huggingface": "root", "table": "file"}
"""The option whose file name is the name of such data."""
MOST_EPOCHS = 1_000_000
"""As far as records are looked for; a number in a stranger's file may be any."""


@dataclass
class Result:
    """The content of a run directory: options, one record per readable evaluation, and problems."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    """Classes and numbers of images, as data.json has them."""
    description: dict[str, Any] = field(default_factory=dict)
    """The name of the data and the sentence about the method, as description.json has them."""
    resolved: dict[str, Any] = field(default_factory=dict)
    """Values that the training derived from its options: `method.ramp_up` in epochs, for example."""
    problems: list[str] = field(default_factory=list)

    @property
    def seed(self) -> int | str:
        seed = self.config.get("seed", "?")
        return seed if isinstance(seed, int) else str(seed)

    @property
    def epochs(self) -> int | None:
        """Return the number of epochs to train, or None if the options do not say it."""
        epochs = self.config.get("epochs")
        return epochs if isinstance(epochs, int) else None

    @property
    def trained(self) -> int:
        """Return the number of epochs that the records cover."""
        return int(self.last["epoch"]) + 1 if self.records else 0

    @property
    def finished(self) -> bool:
        return self.epochs is not None and (0 < self.epochs <= self.trained or self.stopped_early)

    @property
    def select(self) -> SelectName:
        """Return which weights it deploys: the last, or those selected on held-out images."""
        return "best" if self.config.get("select") == "best" else "last"

    @property
    def stopped_early(self) -> bool:
        """Return whether the patience of `select` best was over before the last epoch."""
        patience = self.config.get("patience") if self.select == "best" else None
        shorter = self.epochs is not None and self.trained < self.epochs
        return shorter and isinstance(patience, int) and patience_is_over(self.records, patience)

    @property
    def last(self) -> Record:
        return self.records[-1]

    @property
    def deployed_record(self) -> Record:
        """Return the record of the weights to deploy: the last, or the best so far with `select` best."""
        return deployed_record(self.records, self.select)

    @property
    def outcome(self) -> str:
        """Say what is unusual about how it ended, and which weights were selected; nothing for most runs."""
        if self.select == "last" or not self.records:
            return ""
        best, ended = self.deployed_record, ""
        if self.stopped_early:
            ended = early_stop_sentence(self.trained, self.epochs, self.config["patience"]) + "; "
        return f"{ended}{best['deployed']} of epoch {best['epoch'] + 1} {SELECTED}"

    @property
    def environments(self) -> list[dict[str, Any]]:
        """Return the environments in which the run was started and continued."""
        continued = self.environment.get("continued")
        parts = [self.environment, *continued] if isinstance(continued, list) else [self.environment]
        return [part for part in parts if isinstance(part, dict)]

    @property
    def method(self) -> str:
        return class_name(self.config.get("method"))

    @property
    def setting(self) -> str:
        """Return `network on data`, with a mark where weights are selected.

        Of peers that are different networks, the first is deployed.
        """
        peers = self.config.get("peers")
        model = peers.partition(",")[0].strip() if isinstance(peers, str) else self.config.get("model", "?")
        mark = f", {SELECTED}" if self.select == "best" else ""
        return f"{object_name(model)} on {self.data_name}{mark}"

    @property
    def data_name(self) -> str:
        """Return what people call the data: the name of a folder or file of images, else of the set."""
        name = self.description.get("data")
        if isinstance(name, str) and name:
            return name
        spec = self.config.get("data")  # a run of an older version
        name, options = class_name(spec), spec.get("init_args") if isinstance(spec, dict) else None
        source = NAMED_BY.get(name)
        path = options.get(source) if source and isinstance(options, dict) else None
        return Path(path).name or name if isinstance(path, str) else name


def fastest_seconds(run: Result) -> float | None:
    """Return the seconds of training if all of it were as fast as its fastest interval between records.

    Long runs share their machine with other work and are paused; their fastest epochs are disturbed the least.
    """
    every = run.config.get("evaluate_every", 1)
    longest = every if isinstance(every, int) else 1  # a longer gap means that a record is damaged
    ends = [record["epoch"] + 1 for record in run.records]
    lengths = [min(end - start, longest) for start, end in pairwise([0, *ends])]
    times = [record["time"].get("train") for record in run.records]
    paces = [time / length for time, length in zip(times, lengths, strict=True) if time]
    return min(paces) * run.trained if paces else None


def score(record: Record, predictor: str, name: str) -> float | None:
    """Return a predictor's score in a record, or None if the record lacks it."""
    value = record["predictors"].get(predictor, {}).get(name)
    return None if value is None else float(value)


def class_name(spec: Any) -> str:
    """Return the last part of the import path in a spec {class_path: ..., init_args: ...}."""
    path = object_name(spec.get("class_path") if isinstance(spec, dict) else spec)
    return str(path).rpartition(".")[2] if path else "?"


def object_name(value: Any) -> Any:
    """Return `make_model` for the label `<make_model in train.py>`; any other value as it is."""
    return value[1:-1].partition(" in ")[0] if isinstance(value, str) and labels_in(value) else value


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the run directories among these directories and below them, in order."""
    by_location: dict[Path, Path] = {}  # a run may be named twice
    for path in paths:
        if not path.is_dir():
            raise InputError(f"{path} is not a directory: name run directories, or one that contains some.")
        runs = sorted({file.parent for name in FILES for file in path.rglob(name) if not _moved(file, path)})
        if not runs:
            raise InputError(f"{path} holds no run: `coterie train --out {path}` makes one.")
        for run in runs:
            by_location.setdefault(run.resolve(), run)
    return list(by_location.values())


def _moved(file: Path, below: Path) -> bool:
    return any(part.endswith(ASIDE) for part in file.relative_to(below).parts[:-1])


def read_run(path: Path) -> Result:
    """Read a run directory; what is missing or damaged in it becomes a problem of the result."""
    result = Result(path)
    result.config = _mapping(result, "config.yaml", read_yaml)
    result.environment = _mapping(result, "environment.json", load_json)
    if (path / "data.json").is_file():  # a run of another program may have none
        result.data = _mapping(result, "data.json", load_json)
    if (path / "resolved.json").is_file():
        result.resolved = _mapping(result, "resolved.json", load_json)
    if (path / "description.json").is_file():
        result.description = _mapping(result, "description.json", load_json)
    file = path / NAME
    if not file.is_file():
        result.problems.append(f"no epoch has finished: there is no {NAME}")
        return result
    result.records = _read_records(result, file)
    result.problems += _diagnose(result)
    return result


def _read_records(result: Result, file: Path) -> list[Record]:
    """Return the records of a run, in order; lines that are damaged or of another run are named and left out."""
    run, records, foreign = result.environment.get(RUN), dict[int, Record](), list[int]()
    try:
        lines = read_bytes(file).decode(errors="replace").splitlines()
    except ValueError as error:
        result.problems.append(f"{NAME} cannot be read: {error}")
        return []
    intact = True
    for number, line in enumerate(lines, 1):
        try:
            record, owner = decode_record(line)
            _check(record)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            cut_off = number == len(lines) and isinstance(error, json.JSONDecodeError)
            result.problems.append(
                f"the last line of {NAME} is cut off" if cut_off else f"line {number} of {NAME} is damaged"
            )
            intact = False
            continue
        if run is not None and owner is not None and owner != run:
            foreign.append(number)
        else:
            records[record["epoch"]] = record
    if foreign:
        more = f" and {len(foreign) - 1} more are" if len(foreign) > 1 else " is"
        result.problems.append(f"line {foreign[0]} of {NAME}{more} of another run")
    elif intact:
        result.problems += _gaps(result, records)
    return [records[epoch] for epoch in sorted(records)]


def _gaps(result: Result, epochs: Collection[int]) -> Iterator[str]:
    """Yield the first epoch whose record is not there, though that of a later one is."""
    every = result.config.get("evaluate_every", 1)
    if result.epochs is None or not isinstance(every, int) or every < 1 or not epochs:
        return
    due, last = due_epochs(min(result.epochs, MOST_EPOCHS), every), max(epochs)
    if missing := [epoch for epoch in due if epoch < last and epoch not in epochs]:
        yield f"{NAME} has no record of epoch {missing[0] + 1}"


def _mapping(result: Result, name: str, load: Callable[[Path], Any]) -> dict[str, Any]:
    """Return the mapping in a file of the run, or an empty one with a problem that says why."""
    try:
        content = load(result.path / name)
    except OSError:
        result.problems.append(f"there is no {name}")
    except ValueError:
        result.problems.append(f"{name} cannot be read")
    else:
        if isinstance(content, dict):
            return content
        result.problems.append(f"{name} is not a table of names and values")
    return {}


def _check(record: Any) -> None:
    """Raise an error if a record lacks what every figure needs; drop values that are not numbers."""
    if (
        not isinstance(record["epoch"], int)
        or not 0 <= record["epoch"] < 2**53
        or record["deployed"] not in record["predictors"]
    ):
        raise ValueError
    for scores in record["predictors"].values():
        float(scores["error"])
    for key in ("terms", "diversity", "agreement", "time"):
        record[key] = _numbers(record.get(key) or {})
    record["predictors"] = {name: _numbers(scores) for name, scores in record["predictors"].items()}
    record["lr"] = _numbers({"lr": record.get("lr")}).get("lr")


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}


def _diagnose(result: Result) -> Iterator[str]:
    """Yield what the records say about a run that did not finish or diverged."""
    if not result.records:
        yield "no epoch has finished"
        return
    for record in result.records:
        bad = [n for n, v in record["terms"].items() if not math.isfinite(v)]
        bad += [
            f"{metric} of {p}"
            for p, s in record["predictors"].items()
            for metric, v in s.items()
            if not math.isfinite(v)
        ]
        if bad:
            yield f"{bad[0]} is not a finite number from epoch {record['epoch'] + 1} on: the training diverged"
            break
    if not result.finished:
        yield f"{result.trained} of {result.epochs or '?'} epochs so far"
