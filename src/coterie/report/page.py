"""A report as one self-contained HTML file."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..run import write as write_file
from . import sections
from .runs import find, group, read


def write(runs: Sequence[Path], file: Path, title: str) -> None:
    """The page of these runs, or of all runs below these directories."""
    groups = group([read(path) for path in find(runs)])
    environment = Environment(
        loader=PackageLoader("coterie.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    found = [
        sections.results(groups),
        sections.curves(groups),
        sections.cost(groups),
        sections.diversity(groups),
        sections.provenance(groups),
    ]
    problems = [(run.path, p) for g in groups for run in g.runs for p in run.problems]
    html = environment.get_template("page.html").render(
        title=title,
        summary=sections.summary(groups),
        problems=problems,
        sections=[section for section in found if section.blocks or section.missing],
        runs=sum(len(g.runs) for g in groups),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, html)
