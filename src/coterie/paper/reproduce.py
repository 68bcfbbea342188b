"""`coterie reproduce`: checks everything first, does what is missing, and shows what there is."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from .. import models
from ..config import options
from ..config.parsing import parse
from ..config.recipe import Recipe
from ..errors import InputError, unknown
from ..experiments.job import Job, distinct, shard
from ..experiments.runner import Launcher, Local, run, say
from ..experiments.state import state
from . import study
from .dry_run import list_runs
from .figures import draw, draw_split
from .protocols import EXPERIMENTS, PROTOCOLS, Protocol
from .render import markdown, marker, place, placed, show
from .results import Line, lines
from .study import STUDIES, Study
from .study_tables import StudyTables, study_tables
from .tables import Cell, cells, select

Format = Literal["table", "markdown", "json"]
NOTE = "protocol.json"
"""Says of a directory of runs by which protocol they are."""


class Reproduction:
    """One table or figure by one protocol, in one directory of runs.

    Args:
        experiment: its name; `study`, `screening` and `split` are those of a `Study`.
        protocol: how it is run.
        out: the directory of runs; runs that several tables share are trained once.
        seeds: runs of each cell.
        only: which cells, as `tables.select` understands it.
        data_root: where the data sets are; ImageNet's folder is `imagenet` in there.
        against: the row that the others are compared with, if not the first.
    """

    def __init__(
        self,
        experiment: str,
        protocol: Protocol,
        out: Path,
        seeds: int,
        only: str = "",
        data_root: str = "data",
        against: str = "",
    ) -> None:
        if experiment not in (*EXPERIMENTS, *study.EXPERIMENTS):
            raise unknown("table or figure", experiment, (*EXPERIMENTS, *study.EXPERIMENTS))
        if experiment not in protocol.settings:
            suited = [name for name, other in (PROTOCOLS | STUDIES).items() if experiment in other.settings]
            raise InputError(
                f"The protocol {protocol.name} has no {experiment}: choose --protocol {' or '.join(suited)}."
            )
        if seeds < 1:
            raise InputError(f"--seeds must be at least 1, not {seeds}.")
        self.experiment, self.protocol, self.out, self.data_root = experiment, protocol, out, data_root
        self.only, self.seeds, self.against = only, seeds, against
        if isinstance(protocol, Study):
            self.everything = study.cells(experiment, protocol, seeds)
        else:
            self.everything = cells(experiment, protocol, seeds)
        self.cells: Sequence[Cell] = select(self.everything, only) if only else self.everything
        rows = dict.fromkeys(cell.row for cell in self.everything)
        if against and against not in rows:
            raise InputError(f"--against '{against}': there is no such row; there are {'; '.join(rows)}.")
        self._check_out()

    def _check_out(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is a file: --out must name a directory.")
        # Looked at first: another shard may be making this directory, and notes the protocol before all else.
        used = self.out.is_dir() and any(not path.name.startswith(NOTE) for path in self.out.iterdir())
        file = self.out / NOTE
        if file.is_file():
            try:
                made = json.loads(file.read_text())["protocol"]
            except (OSError, ValueError, KeyError, TypeError):
                raise InputError(f'{file} is damaged: write {{"protocol": NAME}} into it again.') from None
            if made != self.protocol.name:
                raise InputError(
                    f"{self.out} was made with the protocol {made}, not {self.protocol.name}: "
                    "choose another --out."
                )
        elif used:
            raise InputError(f"{self.out} is not empty and holds no results: choose another --out.")

    def prepare(self) -> None:
        """Make the directory; its protocol is noted. Shards may do so at the same time."""
        file = self.out / NOTE
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if not file.is_file():
                part = file.with_name(f"{NOTE}.{uuid.uuid4().hex}.part")
                part.write_text(json.dumps({"protocol": self.protocol.name}) + "\n")
                part.replace(file)
        except OSError as error:
            raise InputError(f"{self.out} cannot be written ({error.strerror}): choose another --out.") from None

    def jobs(self, part: str = "") -> list[Job]:
        """All runs in the order of training, or those of a shard such as 2/5."""
        if isinstance(self.protocol, Study):
            jobs = distinct(study.queue(self.protocol, self.cells))
        else:
            jobs = distinct(job for cell in self.cells for job in cell.jobs)
        if not part:
            return jobs
        match = re.fullmatch(r"(\d+)/(\d+)", part)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise InputError(f"--shard is i/n with i from 1 to n, such as 2/5, not '{part}'.")
        return shard(jobs, int(match[1]), int(match[2]))

    @property
    def marker(self) -> str:
        """Where its table stands in a document."""
        seeds = None if self.seeds == planned_seeds(self.experiment, self.protocol) else self.seeds
        return marker(self.experiment, self.protocol.name, self.only, seeds, self.against)

    def study_tables(self) -> StudyTables:
        """The tables of a study, from the runs that there are."""
        assert isinstance(self.protocol, Study)
        return study_tables(self.experiment, self.protocol, self.cells, self.everything, self.out, self.against)

    def lines(self) -> list[Line]:
        return lines(self.experiment, self.cells, self.everything, self.out, self.against)

    def recipe(self, job: Job) -> Recipe:
        """A job's recipe as `coterie train` will understand it, the data as seen from here."""
        parser, flags = self._parser, job.flags(self._root(job))
        return options.from_namespace(parser, parse(parser, flags))

    @cached_property
    def _parser(self) -> ArgumentParser:
        return options.parser()

    def _root(self, job: Job) -> str:
        data = job.options["data"]
        return {"digits": "", "folder": str(Path(self.data_root) / "imagenet")}.get(data, self.data_root)

    def roots(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Where each data set lies as seen from `out`, in which the runs are started."""
        start, found = self.out.resolve(), {str(job.options["data"]): self._root(job) for job in jobs}
        return {
            data: root if not root or Path(root).is_absolute() else os.path.relpath(Path(root).resolve(), start)
            for data, root in found.items()
        }

    def check(self, jobs: Sequence[Job]) -> None:
        """That every run's options, network and data exist: each data set is loaded, each network made, once."""
        loaded: dict[str, Recipe] = {}
        networks: set[tuple[str, str]] = set()
        for job in {replace(job, seed=0, needs=None).name: job for job in jobs}.values():
            made = self.recipe(job)
            data = json.dumps({key: v for key, v in job.options.items() if key.partition(".")[0] == "data"})
            if data not in loaded:
                try:
                    made.data.load()
                except InputError as error:
                    raise InputError(f"{error} (`coterie reproduce` looks where --data-root says.)") from None
                loaded[data] = made
            known = loaded[data].data
            if (data, made.model) not in networks:
                networks.add((data, made.model))
                channels, *size = known.shape
                classes, sides = len(known.classes), (size[0], size[1])
                models.factory(made.model, classes, channels, made.model_options, sides, fresh=False)()


def default_out(experiment: str, protocol: Protocol) -> Path:
    """The directory of runs; the split shares the study's, screening has one of its own."""
    if not isinstance(protocol, Study):
        return Path("results", protocol.name)
    return Path("results", "screening" if experiment == "screening" else "study", protocol.name)


def planned_seeds(experiment: str, protocol: Protocol) -> int:
    """The number of seeds if none is given."""
    return protocol.seeds.get(experiment, 3) if isinstance(protocol, Study) else 3


def reproduce(
    what: str,
    protocol: str,
    only: str,
    seeds: int | None,
    out: str,
    data_root: str,
    against: str,
    launcher: str,
    processes: int | None,
    threads: int,
    part: str,
    dry_run: bool,
    render_only: bool,
    form: Format,
    into: str,
) -> dict[str, str]:
    """The command. Returns the runs that failed, and why."""
    protocols = PROTOCOLS | STUDIES
    if protocol not in protocols:
        raise unknown("protocol", protocol, protocols)
    if threads < 1 or (processes is not None and processes < 1):
        raise InputError("--processes and --threads must be at least 1.")
    chosen = protocols[protocol]
    directory = Path(out) if out else default_out(what, chosen)
    count = planned_seeds(what, chosen) if seeds is None else seeds
    made = Reproduction(what, chosen, directory, count, only, data_root, against)
    jobs = made.jobs(part)
    if isinstance(chosen, Study) and not render_only:
        study.require_screened(chosen, made.cells)
    failed: dict[str, str] = {}
    if into:
        placed(Path(into), made.marker, "")  # it is there: told before hours of training
    if dry_run:
        list_runs(made, jobs, processes, threads)
        return failed
    if not render_only:
        failed = train_missing(made, jobs, launcher, processes, threads)
    present(made, form, into)
    return failed


def train_missing(
    made: Reproduction, jobs: Sequence[Job], launcher: str, processes: int | None, threads: int
) -> dict[str, str]:
    """Do what is missing of these, once everything that can be known beforehand is in order."""
    todo = [job for job in jobs if state(made.out, job).kind != "done"]
    if not todo:
        return {}
    made.check(todo)
    roots = made.roots(jobs)
    where: Launcher
    if launcher == "ray":
        from ..experiments.launch_ray import OnRay

        where = OnRay(made.out, roots, processes, threads)
    else:
        where = Local(made.out, roots, processes, threads)
    made.prepare()
    return run(jobs, made.out, where)


def present(made: Reproduction, form: Format, into: str) -> None:
    """What there is, as asked for; a figure is drawn too."""
    if isinstance(made.protocol, Study):
        present_study(made, form, into)
        return
    found = made.lines()
    if into:
        place(Path(into), made.marker, markdown(found))
    elif form == "json":
        print(json.dumps([line.plain() for line in found], indent=2))
    elif form == "markdown":
        print(markdown(found))
    else:
        show(made.experiment, found)
    draw_into(made, lambda: draw(made.experiment, made.cells, made.out))


def draw_into(made: Reproduction, drawing: Callable[[], Path | None]) -> None:
    """Draw the figure of a whole experiment into its directory, if there is one."""
    if not made.out.is_dir() or made.only:
        return
    try:
        picture = drawing()
    except OSError as error:
        say(f"The figure cannot be drawn in {made.out} ({error.strerror}).")
    else:
        if picture:
            say(f"{picture}: the figure.")


def present_study(made: Reproduction, form: Format, into: str) -> None:
    """The study's tables, as asked for; the split is drawn too."""
    tables = made.study_tables()
    if into:
        place(Path(into), made.marker, tables.markdown())
    elif form == "json":
        print(json.dumps(tables.plain, indent=2))
    elif form == "markdown":
        print(tables.markdown())
    else:
        tables.show()
    if made.experiment == "split" and not made.against:
        draw_into(made, lambda: draw_split(tables.lines, made.protocol.says, made.out))
