"""A report as one self-contained HTML file."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..errors import Failure, InputError, printable
from ..runs.directory import write as write_file
from ..runs.own_files import check_output
from ..runs.reader import FILES, find_runs, read_run
from . import curves, sections
from .against import mark_reference
from .content import Figure, ReportSection, Tile
from .deployment import deployment_section
from .grouping import group_runs
from .groups import Group, compared, deployed_error
from .method_lines import methods_section
from .summary import summary_sentences, summary_tiles
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
    sections: list[ReportSection]

    def figures(self, name: str) -> list[Figure]:
        """Return the charts of this name, in the order of the page."""
        charts: dict[str, list[Figure]] = {}
        for figure in (block for s in self.sections for block in s.blocks if isinstance(block, Figure)):
            charts.setdefault(figure.name, []).append(figure)
        if not charts:
            raise InputError(f"There is no chart '{name}': no run has finished an epoch.")
        if name not in charts:
            raise InputError(f"There is no chart '{name}'; there is: {', '.join(charts)}.")
        return charts[name]


def compose(runs: Sequence[Path], paper: Sequence[ReportSection] = (), against: str = "") -> Report:
    """Read these runs, or all runs below these directories; `paper` are views of the paper's tables.

    The others are compared with `against`, a method or a run, or else with the Baseline.
    """
    groups = group_runs([read_run(path) for path in find_runs(runs)])
    if against:
        mark_reference(groups, against)
    every = [
        *paper,
        methods_section(groups),
        sections.results_section(groups),
        curves.curves_section(groups),
        sections.cost_section(groups),
        curves.diversity_section(groups),
        sections.calibration_section(groups),
        sections.mistakes_section(groups),
        sections.views_section(groups),
        deployment_section(groups),
        sections.runs_section(groups),
    ]
    about = compared(groups)
    return Report(
        groups,
        summary_sentences(groups),
        summary_tiles(about[0]) if len(about) == 1 else [],
        [*_problems(groups), *_disagreements(groups)],
        [section for section in every if section.blocks or section.missing],
    )


def _problems(groups: Sequence[Group]) -> list[str]:
    """Say what is wrong with which run; what many have in common once, for the table of runs has each."""
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


def _disagreements(groups: Sequence[Group]) -> list[str]:
    """Name evaluations with another error than the run's record: one of the two files is of other weights."""
    sentences = []
    for g in groups:
        run, error = g.evaluated, g.evaluation.error
        recorded = deployed_error(run.deployed_record) if run.finished else None
        if error is not None and recorded is not None and abs(error - recorded) > 0.1:
            sentences.append(
                f"{run.path}: its evaluation.json has an error of {error:.2f} %, its record {recorded:.2f} %"
            )
    return sentences


def default_title(report: Report) -> str:
    """Return a title from what was trained."""
    methods = list(dict.fromkeys(g.method for g in report.groups))
    trained = [same[0].setting for same in compared(report.groups)]
    who = ", ".join(methods) if len(methods) < 5 else f"{len(methods)} methods"
    return f"{who}: {trained[0] if len(trained) == 1 else f'{len(trained)} networks and data sets'}"


def render_page(report: Report, title: str, refresh: int | None = None) -> str:
    """Return the page; with `refresh` the browser loads it again after so many seconds."""
    environment = Environment(
        loader=PackageLoader("coterie.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals["to_html"] = to_html
    page = environment.get_template("page.html").render(
        title=title,
        report=report,
        refresh=refresh,
        runs=sum(len(g.runs) for g in report.groups),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )
    return printable(page, lines=True)


def write_report(
    runs: Sequence[Path],
    file: Path,
    title: str | None = None,
    paper: Sequence[ReportSection] = (),
    against: str = "",
) -> None:
    """Write the page of these runs, or of all runs below these directories."""
    report = compose(runs, paper, against)
    save_text(file, render_page(report, title or default_title(report)))


def save_text(file: Path, text: str, option: str = "`output`") -> None:
    """Write a file, or say in one sentence why it cannot be written."""
    check_output(file, option)
    if not file.name:
        raise InputError(f"{file} names no file: choose another {option}.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, text)
    except (OSError, Failure) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        reason = getattr(cause, "strerror", None) or cause
        raise InputError(f"{file} cannot be written ({reason}): choose another {option}.") from None


def watch_runs(
    runs: Sequence[Path],
    output: Path,
    paper: Callable[[Sequence[Path]], Sequence[ReportSection]] = lambda runs: (),
    against: str = "",
) -> None:
    """Write the page whenever the runs have something new, until interrupted; `paper` makes views of them."""
    seen: dict[Path, int] | None = None
    while True:
        files = [run / part for run in find_runs(runs) for part in (*FILES, "evaluation.json")]
        now = {file: file.stat().st_mtime_ns for file in files if file.is_file()}
        if now != seen:
            report, seen = compose(runs, paper(runs), against), now
            going = any(not run.finished for g in report.groups for run in g.runs)
            save_text(output, render_page(report, default_title(report), REFRESH if going else None))
        time.sleep(REFRESH)
