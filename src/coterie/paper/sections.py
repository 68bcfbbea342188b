"""A directory of `coterie reproduce` in the report: the paper's tables with ours beside them, and the study's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from ..metrics.seeds import PAIRED
from ..report.content import Figure, ReportSection
from ..report.curves import banded, figures
from ..report.table import Cell, Table, difference, number, spread, text
from .figures import accuracy, averaged_error, error
from .numbers import SAYS
from .protocols import PROTOCOLS, Protocol
from .reproduce import Reproduction
from .results import Line, branch_variance, common_seeds, curve, digits
from .study import STUDIES, Study
from .study_tables import study_section
from .tables import Cell as PaperCell

P = TypeVar("P", bound=Protocol)
NAMES = {"table": "Table", "fig": "Fig."}


def experiment_sections(runs: Sequence[Path]) -> list[ReportSection]:
    """The paper's tables and the study's that have finished runs in these directories or below."""
    return [*beside_the_paper(runs), *of_the_study(runs)]


def of_the_study(runs: Sequence[Path], protocols: Mapping[str, Study] = STUDIES) -> list[ReportSection]:
    """One section with the tables of every study that has finished runs; else none."""
    return study_section(
        [
            Reproduction(experiment, protocol, path, protocol.seeds[experiment]).study_tables()
            for path, protocol in _protocols(runs, protocols)
            for experiment in protocol.settings
        ]
    )


def beside_the_paper(runs: Sequence[Path], protocols: Mapping[str, Protocol] = PROTOCOLS) -> list[ReportSection]:
    """One section with every table and figure that has finished runs in these directories or below; else none."""
    blocks = [block for path, protocol in _protocols(runs, protocols) for block in _blocks(path, protocol)]
    lead = (
        f"Top-1 error in %, mean ± standard deviation over the seeds. {PAIRED} Cost "
        "is training time, as if all had gone as fast as its fastest stretch, a teacher's included, in that of "
        "the first row. Where the protocol is not the paper's, compare order and differences, not the errors."
    )
    return [ReportSection("paper", "Beside the paper", lead, list(blocks))] if blocks else []


def _protocols(runs: Sequence[Path], protocols: Mapping[str, P]) -> list[tuple[Path, P]]:
    """The directories of `coterie reproduce` in or below these, each with its protocol if it is one of these."""
    known = []
    for file in sorted({file for path in runs for file in path.rglob("protocol.json")}):
        try:
            known.append((file.parent, protocols[json.loads(file.read_text())["protocol"]]))
        except (OSError, ValueError, KeyError, TypeError):  # not ours, or damaged: its runs are shown all the same
            continue
    return known


def _blocks(path: Path, protocol: Protocol) -> list[Table | Figure]:
    found: list[Table | Figure] = []
    for experiment in protocol.settings:
        made = Reproduction(experiment, protocol, path, seeds=1)  # and whatever further ones there are
        for setting, group in groupby(made.lines(), key=lambda line: line.setting):
            rows = list(group)
            if sum(line.error.count > 0 for line in rows) > 1:  # more than what the others are compared with
                title = f"{_name(experiment)} by the protocol {protocol.name}: {setting}"
                found.append(_table(title, rows, SAYS[experiment]))
                cells = [cell for cell in made.cells if cell.setting.title == setting]
                found += _drawn(experiment, title, cells, path)
    return found


def _name(experiment: str) -> str:
    """Table 1, Fig. 4."""
    return f"{NAMES[experiment[:-1]]} {experiment[-1]}"


def _table(title: str, lines: Sequence[Line], says: str) -> Table:
    first = lines[0]
    columns = ["method", "error %", f"paper ({first.beside})", f"difference to {first.reference}", "cost", "runs"]
    notes = [f"{line.row}: {note}" for line in lines for note in line.notes if not note.endswith("missing")]
    rows = [
        [*_row(line), *(spread(value, digits(name)) for name, value in line.further.items())] for line in lines
    ]
    return Table(
        title, [*columns, *first.further], rows, " ".join([f"The paper: {says}", "; ".join(notes)]).strip()
    )


def _row(line: Line) -> list[Cell]:
    paper = line.paper
    return [
        text(line.row),
        spread(line.error),
        Cell("–") if paper is None else Cell(str(paper), paper.mean, deviation=paper.std),
        difference(line.difference),
        number(line.cost, "{:.1f}"),
        number(line.error.count),
    ]


def _drawn(experiment: str, title: str, cells: Sequence[PaperCell], out: Path) -> list[Figure]:
    """Fig. 3's errors, Fig. 4's accuracies and branch variances; Fig. 5's few numbers stand in the table."""
    named = {
        "fig3": [
            ("error %, as deployed", error),
            ("error %, averaged weights in all rows", lambda cell: averaged_error),
        ],
        "fig4": [
            ("accuracy of the ensemble, %", accuracy),
            ("branch variance of the trained weights", lambda cell: branch_variance("peer")),
            ("branch variance of the averaged weights", lambda cell: branch_variance("mean")),
        ],
    }
    if experiment not in named:
        return []
    compared = common_seeds(cells, out)
    return [
        figure
        for y, value in named[experiment]
        for figure in figures(
            f"{title}, {y}",
            [banded(cell.row, curve(cell, out, value(cell)), colour) for colour, cell in enumerate(compared)],
            y,
            False,
        )
    ]
