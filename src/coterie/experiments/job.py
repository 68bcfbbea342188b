"""Job: one training with one seed. What it is called says what it is, so another option is another run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import InputError
from ..methods import Method, available
from ..runs.reader import class_name, object_name

Options = Mapping[str, Any]
"""Flags of `coterie train` without their dashes: {'model': 'resnet32', 'method.weight': 0.1, ...}."""


MOST_SEEDS = 10_000


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that is none, or that nobody can wait for."""
    if not isinstance(seeds, int) or seeds < 1:
        raise InputError(f"`seeds` must be at least 1, not {seeds}.")
    if seeds > MOST_SEEDS:
        raise InputError(f"`seeds` must be at most {MOST_SEEDS:,}, not {seeds:,}.")


@dataclass(frozen=True)
class Job:
    """Options of `coterie train`, a seed, and the run that must be finished before: KD's teacher."""

    options: Options
    seed: int
    needs: Job | None = None
    runtime: Options = field(default_factory=dict)
    """Options that say how and where it is computed, not what: no part of its name, for they may change."""

    @cached_property
    def name(self) -> str:
        """The run's directory. Where the data lies is no part of it: that may change."""
        options = {**self.options, "teacher": self.needs.name if self.needs else None}
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]
        method = class_name(self.options["method"])
        parts = [_safe(object_name(part)) for part in (method, self.options["model"], self.options["data"])]
        return "-".join([*parts, digest, f"s{self.seed}"])

    @property
    def epochs(self) -> int:
        return int(self.options["epochs"])

    @property
    def evaluated(self) -> list[int]:
        """The epochs, from 0, after which it writes a record."""
        every = int(self.options.get("evaluate_every", 1))
        return [*range(every - 1, self.epochs - 1, every), self.epochs - 1]

    @property
    def peers(self) -> int:
        peers = self.options.get("peers", 3)
        return len(peers.split(",")) if isinstance(peers, str) else int(peers)

    @property
    def method(self) -> type[Method]:
        return available()[self.options["method"]]

    @property
    def method_options(self) -> Options:
        """The options of the method itself, by their names there."""
        own = "method."
        return {key.removeprefix(own): value for key, value in self.options.items() if key.startswith(own)}

    @property
    def share(self) -> float:
        """The part of the network's work in each branch: a third at the paper's cuts, all of it without a cut."""
        return 1.0 if self.options.get("cut") == "none" else 1 / 3

    def flags(self, data_root: str = "") -> list[str]:
        """The options as `coterie train` takes them; a class comes before its own options."""
        options = {**self.options, **self.runtime, "seed": self.seed}
        if self.needs is not None:
            options["method.teacher"] = self.needs.name
        if data_root:
            options["data.root"] = data_root
        flags = []
        for key in sorted(options, key=lambda key: "." in key):
            value = options[key]
            flags += [f"--{key}", value if isinstance(value, str) else json.dumps(value)]
        return flags

    def step_cost(self, teacher_size: float = 1.0) -> float:
        """Return a step's cost in plain steps; `teacher_size` is a teacher's work in that of the network."""
        return self.method.step_cost(self.peers, self.share, self.method_options, teacher_size)


def _safe(name: str) -> str:
    """Return `timm_vit_tiny` for `timm:vit_tiny`: a part of a directory's name, of at most 60 characters."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.")[-60:]


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Return each run once, its teacher before it."""
    by_name: dict[str, Job] = {}
    for job in jobs:
        if job.needs is not None:
            by_name.setdefault(job.needs.name, job.needs)
        by_name.setdefault(job.name, job)
    return list(by_name.values())


def shard(jobs: list[Job], part: int, parts: int) -> list[Job]:
    """Return every `parts`-th of the jobs from number `part` (1, 2, ...) on; a run stays with its teacher."""
    families = list(dict.fromkeys((job.needs or job).name for job in jobs))
    mine = set(families[part - 1 :: parts])
    return [job for job in jobs if (job.needs or job).name in mine]
