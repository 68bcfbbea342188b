"""A directory of `coterie reproduce` in the report: the paper's tables with ours beside them, and the study's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from ..files import load_json
from ..metrics.seeds import PAIRED
from ..report.content import Figure, Gallery, ReportSection
from ..report.curves import banded, figures
from ..report.table import Table
from .figures import CURVES
from .numbers import CONCLUSIONS
from .protocols import PROTOCOLS, Protocol
from .reproduce import Reproduction
from .result_tables import column_table, paper_columns, paper_title
from .results import ResultLine, ResultRuns
from .study import STUDIES, Study

P = TypeVar("P", bound=Protocol)


def experiment_sections(runs: Sequence[Path]) -> list[ReportSection]:
    """Return the paper's tables and the study's that have finished runs in these directories or below."""
    return [*paper_section(runs), *study_section(runs)]


def study_section(runs: Sequence[Path], protocols: Mapping[str, Study] = STUDIES) -> list[ReportSection]:
    """Return one section with the tables of every study that has finished runs; else none."""
    blocks: list[Table | Figure | Gallery] = []
    for path, protocol in _protocols(runs, protocols):
        for experiment in protocol.settings:
            results = Reproduction(experiment, protocol, path).tables()
            blocks += results.tables if any(line.error.count for line in results.lines) else []
    lead = "Rows compared over the same seeds, each with its own training images; planned in docs/study.md."
    return [ReportSection("study", "The study", lead, blocks)] if blocks else []


def paper_section(runs: Sequence[Path], protocols: Mapping[str, Protocol] = PROTOCOLS) -> list[ReportSection]:
    """Return one section with every table and figure that has finished runs in these directories; else none."""
    blocks = [block for path, protocol in _protocols(runs, protocols) for block in _blocks(path, protocol)]
    lead = (
        f"Top-1 error in %, mean ± standard deviation over the seeds. {PAIRED} Cost "
        "is training time relative to the first row, computed from the fastest part of a row's runs, a "
        "teacher's included. Where the protocol is not the paper's, compare order and differences, not the errors."
    )
    return [ReportSection("paper", "Beside the paper", lead, list(blocks))] if blocks else []


def _protocols(runs: Sequence[Path], protocols: Mapping[str, P]) -> list[tuple[Path, P]]:
    """Return the directories of `coterie reproduce` in or below these, with their protocols."""
    directories = []
    for file in sorted({file for path in runs for file in path.rglob("protocol.json")}):
        try:
            directories.append((file.parent, protocols[load_json(file)["protocol"]]))
        except (OSError, ValueError, KeyError, TypeError):  # not ours, or damaged: its runs are shown all the same
            continue
    return directories


def _blocks(path: Path, protocol: Protocol) -> list[Table | Figure]:
    blocks: list[Table | Figure] = []
    for experiment in protocol.settings:
        results = Reproduction(experiment, protocol, path, seeds=1).tables()  # and what there is of further seeds
        for setting, group in groupby(results.lines, key=lambda line: line.setting):
            lines = list(group)
            if sum(line.error.count > 0 for line in lines) > 1:  # more than what the others are compared with
                title = f"{paper_title(experiment)} by the protocol {protocol.name}: {setting}"
                odd = [(line.row, note) for line in lines for note in line.notes if not note.endswith("missing")]
                notes = "; ".join(f"{row}: {note}" for row, note in odd)
                note = f"The paper: {CONCLUSIONS[experiment]} {notes}".strip()
                blocks.append(column_table(title, paper_columns(lines[0], report=True), lines, note))
                blocks += _drawn_curves(experiment, title, lines, results.runs)
    return blocks


def _drawn_curves(experiment: str, title: str, lines: Sequence[ResultLine], runs: ResultRuns) -> list[Figure]:
    """Draw the curves of Fig. 3 and 4; Fig. 5's few numbers stand in the table."""
    drawn = []
    cells = runs.common_seeds([line.cell for line in lines]) if experiment in CURVES else []
    for curve in CURVES.get(experiment, ()):
        series = [
            banded(cell.row, runs.curve(cell, curve.value(cell)), colour) for colour, cell in enumerate(cells)
        ]
        drawn += figures(experiment, f"{title}, {curve.name}", series, curve.name, False)
    return drawn
