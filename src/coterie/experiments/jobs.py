"""Job: one training with one seed. What it is called says what it is, so another option is another run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from .protocols import Options


@dataclass(frozen=True)
class Job:
    """Options of `coterie train`, a seed, and the run that must be finished before: KD's teacher."""

    options: Options
    seed: int
    needs: Job | None = None

    @cached_property
    def name(self) -> str:
        """The run's directory. Where the data lies is no part of it: that may change."""
        told = {**self.options, "teacher": self.needs.name if self.needs else None}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.options['method']}-{self.options['model']}-{self.options['data']}-{digest}-s{self.seed}"

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
        return int(self.options.get("peers", 3))

    def flags(self, data_root: str = "") -> list[str]:
        """The options as `coterie train` takes them; a class comes before its own options."""
        told = {**self.options, "seed": self.seed}
        if self.needs is not None:
            told["method.teacher"] = self.needs.name
        if data_root:
            told["data.root"] = data_root
        return [
            part for key in sorted(told, key=lambda key: "." in key) for part in (f"--{key}", _text(told[key]))
        ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Each run once, its teacher before it."""
    found: dict[str, Job] = {}
    for job in jobs:
        if job.needs is not None:
            found.setdefault(job.needs.name, job.needs)
        found.setdefault(job.name, job)
    return list(found.values())


def shard(jobs: list[Job], part: int, parts: int) -> list[Job]:
    """Every `parts`-th of the jobs from number `part` (1, 2, ...) on; a run stays with its teacher."""
    families = list(dict.fromkeys((job.needs or job).name for job in jobs))
    mine = set(families[part - 1 :: parts])
    return [job for job in jobs if (job.needs or job).name in mine]


def cost(job: Job) -> float:
    """A step in steps of the plain network: backward is two forwards, the trunk two thirds."""
    method, m = job.options["method"], job.peers
    if method in ("Baseline", "KD"):
        return float(job.options.get("method.views", 1))  # KD's teacher is measured for itself
    if method in ("DML", "KDCL"):
        return float(m)
    branches = (2 + m) / 3
    if method != "PCL":
        return branches
    views = float(m) if job.options.get("method.input_augmentation", True) else branches
    averaged = job.options.get("method.peer_teacher", "mean") in ("mean", "own_mean")
    return views * (4 / 3 if averaged else 1)
