"""A directory of `coterie reproduce` as the report shows it: each table of the paper with ours beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ..report.content import Cell, Section, Table, number, spread, text
from .protocols import PROTOCOLS, Protocol
from .reproduce import Reproduction
from .results import Line

SEEDS = 10
"""Runs of more seeds than this are not looked for."""


def beside_the_paper(runs: Sequence[Path], protocols: Mapping[str, Protocol] = PROTOCOLS) -> list[Section]:
    """One section with every table and figure that has a finished run in these directories; none without."""
    tables = [table for path in runs for table in _tables(path, protocols)]
    lead = (
        "Top-1 error in %, mean ± standard deviation over the seeds; differences are paired over the seeds, with "
        "their 95 % interval."
    )
    return [Section("paper", "Beside the paper", lead, list(tables))] if tables else []


def _tables(path: Path, protocols: Mapping[str, Protocol]) -> list[Table]:
    file = path / "protocol.json"
    name = str(json.loads(file.read_text()).get("protocol")) if file.is_file() else ""
    if name not in protocols:
        return []
    found = []
    for experiment in protocols[name].settings:
        lines = Reproduction(experiment, protocols[name], path, SEEDS).lines()
        for setting, group in groupby(lines, key=lambda line: line.setting):
            rows = list(group)
            if sum(line.error.count > 0 for line in rows) > 1:  # more than what the others are compared with
                found.append(_table(f"{experiment}, {name}: {setting}", rows))
    return found


def _table(title: str, lines: Sequence[Line]) -> Table:
    first = lines[0]
    columns = ["row", "error %", "runs", f"paper ({first.beside})", f"difference to {first.reference}", "cost"]
    notes = [f"{line.row}: {note}" for line in lines for note in line.notes if not note.endswith("missing")]
    return Table(title, columns, [_row(line) for line in lines], "; ".join(notes))


def _row(line: Line) -> list[Cell]:
    paper, difference = line.paper, line.difference
    return [
        text(line.row),
        spread(line.error),
        number(line.error.count),
        Cell("–") if paper is None else Cell(str(paper), paper.mean, deviation=paper.std),
        Cell("–") if difference is None else Cell(difference.text(), difference.mean, difference.clear),
        number(line.cost, "{:.1f}"),
    ]
