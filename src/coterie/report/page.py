"""A report as one self-contained HTML file."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..errors import Failure, InputError
from ..runs.directory import write as write_file
from ..runs.reader import FILES, find_runs, read_run
from . import from_evaluation, from_metrics
from .content import Section, Tile
from .evaluation import Entry
from .groups import Group, compared, group
from .table import to_html

REFRESH = 3
"""Seconds between two looks at the files of a run that goes on."""


@dataclass
class Report:
    """Everything a report says, before it is written as a page or a text."""

    groups: list[Group]
    summary: list[str]
    tiles: list[Tile]
    problems: list[str]
    sections: list[Section]


def compose(runs: Sequence[Path], paper: Sequence[Section] = ()) -> Report:
    """Read these runs, or all runs below these directories; `paper` are views of the paper's tables."""
    groups = group([read_run(path) for path in find_runs(runs)])
    entries = [Entry.of(g) for g in groups]
    sections = [
        *paper,
        from_metrics.results(groups),
        from_metrics.curves(groups),
        from_evaluation.cost(entries),
        from_metrics.diversity(groups),
        from_evaluation.calibration(entries),
        from_evaluation.mistakes(entries),
        from_evaluation.views(entries),
        from_evaluation.deployment(entries),
        from_metrics.provenance(groups),
    ]
    about = compared(groups)
    main = about[0] if len(about) == 1 else []
    priced = [f for f in entries if f.group in main]
    return Report(
        groups,
        [*from_metrics.summary(groups), *from_evaluation.summary(priced), *from_metrics.besides(groups)],
        [*from_metrics.tiles(main), *from_evaluation.tiles(priced)],
        [*_problems(groups), *from_evaluation.disagreements(entries)],
        [section for section in sections if section.blocks or section.missing],
    )


def _problems(groups: Sequence[Group]) -> list[str]:
    """What is wrong with which run; what many have in common is said once, and the table of runs has each."""
    paths_of: dict[str, list[Path]] = {}
    for run in (run for g in groups for run in g.runs):
        for problem in run.problems:
            paths_of.setdefault(problem, []).append(run.path)
    sentences = []
    for problem, paths in paths_of.items():
        many = len(paths) > 3
        sentences += (
            [f"{paths[0]} and {len(paths) - 1} more: {problem}"] if many else [f"{p}: {problem}" for p in paths]
        )
    return sentences


def name(report: Report) -> str:
    """A title from what was trained."""
    methods = list(dict.fromkeys(g.method for g in report.groups))
    trained = [same[0].setting for same in compared(report.groups)]
    who = ", ".join(methods) if len(methods) < 5 else f"{len(methods)} methods"
    return f"{who}: {trained[0] if len(trained) == 1 else f'{len(trained)} networks and data sets'}"


def render(report: Report, title: str, refresh: int | None = None) -> str:
    """The page; with `refresh` the browser loads it again after so many seconds."""
    environment = Environment(
        loader=PackageLoader("coterie.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["to_html"] = to_html
    return environment.get_template("page.html").render(
        title=title,
        report=report,
        refresh=refresh,
        runs=sum(len(g.runs) for g in report.groups),
        made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )


def write(runs: Sequence[Path], file: Path, title: str | None = None, paper: Sequence[Section] = ()) -> None:
    """The page of these runs, or of all runs below these directories."""
    report = compose(runs, paper)
    save(file, render(report, title or name(report)))


def save(file: Path, text: str) -> None:
    """Write a file, or say in one sentence why it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, text)
    except (OSError, Failure) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        reason = getattr(cause, "strerror", None) or cause
        raise InputError(f"{file} cannot be written ({reason}): choose another --output.") from None


def watch(
    runs: Sequence[Path], output: Path, paper: Callable[[Sequence[Path]], Sequence[Section]] = lambda runs: ()
) -> None:
    """Write the page whenever the runs have something new, until interrupted; `paper` makes views of them."""
    seen: dict[Path, int] | None = None
    while True:
        files = [run / part for run in find_runs(runs) for part in (*FILES, "evaluation.json")]
        now = {file: file.stat().st_mtime_ns for file in files if file.is_file()}
        if now != seen:
            report, seen = compose(runs, paper(runs)), now
            going = any(not run.finished for g in report.groups for run in g.runs)
            save(output, render(report, name(report), REFRESH if going else None))
        time.sleep(REFRESH)
