"""One table, figure or study by one protocol: its jobs are checked, trained where missing, and presented."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from .. import models
from ..config import options
from ..config.parsing import parse
from ..config.recipe import Recipe
from ..errors import Failure, InputError, unknown
from ..experiments.directory import check_directory, write_note
from ..experiments.job import Job, check_seeds, distinct, shard
from ..experiments.run_state import run_state
from ..experiments.runner import LAUNCHERS, print_status, run_jobs
from ..files import load_json
from .cells import ResultCell, select_cells, table_cells
from .comparisons import result_lines
from .document import block_marker, with_block, write_block
from .figures import draw_figure
from .protocols import PROTOCOLS, Protocol
from .result_tables import ResultTables, paper_tables
from .results import ResultRuns
from .study import STUDIES, Study, training_order
from .study_tables import screening_tables, study_tables

NOTE = "protocol.json"
"""Says of a directory of runs by which protocol they are."""


class Reproduction:
    """One table or figure by one protocol, in one directory of runs.

    Args:
        experiment: its name; `study`, `screening` and `split` are those of a `Study`.
        protocol: how it is run, itself or by name.
        out: the directory of runs; runs that several tables share are trained once.
        seeds: runs of each cell; by default those of the plan, or 3.
        only: which cells, as `select_cells` understands it.
        data_root: where the data sets are; ImageNet's folder is `imagenet` in there.
        against: the row that the others are compared with, if not the first.
        brief: show less: of the paper's tables three numbers a row, of the study the rows alone.
    """

    def __init__(
        self,
        experiment: str,
        protocol: Protocol | str,
        out: Path | None = None,
        seeds: int | None = None,
        only: str = "",
        data_root: str = "data",
        against: str = "",
        brief: bool = False,
    ) -> None:
        protocols = PROTOCOLS | STUDIES
        if isinstance(protocol, str) and protocol not in protocols:
            raise unknown("protocol", protocol, protocols)
        self.protocol = protocols[protocol] if isinstance(protocol, str) else protocol
        experiments = dict.fromkeys(name for other in protocols.values() for name in other.settings)
        if experiment not in experiments:
            raise unknown("table or figure", experiment, experiments)
        if experiment not in self.protocol.settings:
            suited = [name for name, other in protocols.items() if experiment in other.settings]
            raise InputError(
                f"The protocol {self.protocol.name} has no {experiment}: choose --protocol {' or '.join(suited)}."
            )
        self.experiment, self.only, self.data_root, self.against = experiment, only, data_root, against
        self.brief = brief
        self.out = default_out(experiment, self.protocol) if out is None else out
        self.seeds = planned_seeds(experiment, self.protocol) if seeds is None else seeds
        check_seeds(self.seeds)
        self.everything = table_cells(experiment, self.protocol, self.seeds)
        self.cells: Sequence[ResultCell] = select_cells(self.everything, only) if only else self.everything
        rows = dict.fromkeys(cell.row for cell in self.everything)
        if against and against not in rows:
            raise InputError(f"--against '{against}': there is no such row; there are {'; '.join(rows)}.")
        self._check_out()

    def _check_out(self) -> None:
        check_directory(self.out, NOTE)
        file = self.out / NOTE
        if not file.is_file():
            return
        try:
            protocol = load_json(file)["protocol"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f'{file} is damaged: write {{"protocol": NAME}} into it again.') from None
        if protocol != self.protocol.name:
            raise InputError(
                f"{self.out} was made with the protocol {protocol}, not {self.protocol.name}: "
                "choose another --out."
            )

    def prepare(self) -> None:
        """Make the directory; its protocol is noted. Shards may do so at the same time."""
        if not (self.out / NOTE).is_file():
            write_note(self.out, NOTE, {"protocol": self.protocol.name})

    def jobs(self, part: str = "") -> list[Job]:
        """Return all jobs in the order of training, or those of a shard such as 2/5."""
        if isinstance(self.protocol, Study):
            jobs = distinct(training_order(self.protocol, self.cells))
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
        """The line of a document after which its table stands."""
        seeds = None if self.seeds == planned_seeds(self.experiment, self.protocol) else self.seeds
        return block_marker(self.experiment, self.protocol.name, self.only, seeds, self.against, self.brief)

    def tables(self) -> ResultTables:
        """Return the tables from the runs that there are."""
        runs = ResultRuns(self.out, further_seeds=not isinstance(self.protocol, Study))
        if isinstance(self.protocol, Study) and self.experiment == "screening":
            return screening_tables(self.protocol, self.cells, runs)
        lines = result_lines(self.experiment, self.cells, self.everything, runs, self.against)
        if isinstance(self.protocol, Study):
            return study_tables(self.experiment, self.protocol, lines, self.everything, runs, self.brief)
        return paper_tables(self.experiment, lines, runs, self.brief)

    def present(self, form: Literal["table", "markdown", "json"] = "table", into: str = "") -> None:
        """Print what there is, or write it into a document; draw the figure too."""
        tables = self.tables()
        if into:
            write_block(Path(into), self.marker, tables.markdown())
        elif form == "json":
            print(json.dumps(tables.plain, indent=2))
        elif form == "markdown":
            print(tables.markdown())
        else:
            tables.show()
        if not (self.out.is_dir() and self._whole):
            return
        try:
            picture = draw_figure(tables)
        except Failure as error:
            print_status(f"The figure: {error}")
        else:
            if picture:
                print_status(f"{picture}: the figure.")

    @property
    def _whole(self) -> bool:
        """Whether this is all of an experiment, as a figure shows it; the study's has the seeds of its plan."""
        few = isinstance(self.protocol, Study) and self.seeds < planned_seeds(self.experiment, self.protocol)
        return not (self.only or few or (self.experiment == "split" and self.against))

    def check_document(self, file: Path) -> None:
        """Refuse a document without a place for the table, before hours of training."""
        with_block(file, self.marker, "")

    def train(self, jobs: Sequence[Job], launcher: str, processes: int | None, threads: int) -> dict[str, str]:
        """Train what is missing of these jobs, once all that can be checked before is in order.

        Returns the runs that failed, and why.
        """
        missing = [job for job in jobs if run_state(self.out, job).kind != "done"]
        if not missing:
            return {}
        self.check(missing)
        launch = LAUNCHERS[launcher](self.out, self.roots(jobs), processes, threads)
        self.prepare()
        return run_jobs(jobs, self.out, launch)

    def check_screened(self) -> None:
        """Refuse to train rows of the study without a probability of CutMix."""
        if rows := [cell.row for cell in self.cells if cell.unscreened]:
            raise InputError(
                f"CutMix's probability is not chosen yet for {'; '.join(rows)}: run `coterie reproduce screening "
                f"--protocol {self.protocol.name}` and enter its choice in MIXING of paper/study.py."
            )

    def recipe(self, job: Job) -> Recipe:
        """Return a job's recipe as `coterie train` will understand it, the data as seen from here."""
        return options.from_namespace(self._parser, parse(self._parser, job.flags(self._root(job))))

    @cached_property
    def _parser(self) -> ArgumentParser:
        return options.parser()

    def _root(self, job: Job) -> str:
        data = job.options["data"]
        return {"digits": "", "folder": str(Path(self.data_root) / "imagenet")}.get(data, self.data_root)

    def roots(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Return where each data set lies as seen from `out`, in which the runs are started."""
        start, roots = self.out.resolve(), {str(job.options["data"]): self._root(job) for job in jobs}
        return {
            data: root if not root or Path(root).is_absolute() else os.path.relpath(Path(root).resolve(), start)
            for data, root in roots.items()
        }

    def check(self, jobs: Sequence[Job]) -> None:
        """Check that every job's options, network and data exist: each data set and network is built once."""
        loaded: dict[str, Recipe] = {}
        networks: set[tuple[str, str]] = set()
        for job in {replace(job, seed=0, needs=None).name: job for job in jobs}.values():
            recipe = self.recipe(job)
            key = json.dumps({name: v for name, v in job.options.items() if name.partition(".")[0] == "data"})
            if key not in loaded:
                try:
                    recipe.data.load()
                except InputError as error:
                    raise InputError(f"{error} (`coterie reproduce` looks where --data-root says.)") from None
                loaded[key] = recipe
            if (key, recipe.model) not in networks:
                networks.add((key, recipe.model))
                data = loaded[key].data
                channels, height, width = data.shape
                models.factory(
                    recipe.model, len(data.classes), channels, recipe.model_options, (height, width), fresh=False
                )()


def default_out(experiment: str, protocol: Protocol) -> Path:
    """Return the directory of runs; the split shares the study's, screening has one of its own."""
    if not isinstance(protocol, Study):
        return Path("results", protocol.name)
    return Path("results", "screening" if experiment == "screening" else "study", protocol.name)


def planned_seeds(experiment: str, protocol: Protocol) -> int:
    """Return the number of seeds if none is given."""
    return len(protocol.seeds.get(experiment, range(3)))
