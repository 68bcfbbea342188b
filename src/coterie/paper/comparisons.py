"""Lines compared with each other: differences, costs, the primary comparisons, the choice of screening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ..experiments.finished import cost_ratio
from ..metrics.seeds import holm_adjusted, paired, paired_differences, seeds_won, sign_flip_p
from .cells import ResultCell
from .protocols import Protocol
from .readings import further_readings
from .results import ComparisonResult, ResultLine, ResultRuns
from .study import Study


def result_lines(
    experiment: str,
    cells: Sequence[ResultCell],
    everything: Sequence[ResultCell],
    runs: ResultRuns,
    against: str = "",
) -> list[ResultLine]:
    """Return these cells compared with the row `against`, or with their own reference, among `everything`."""
    lines = []
    for cell in cells:
        rows = {other.row: other for other in everything if other.setting == cell.setting}
        line, first = runs.line(cell), runs.line(next(iter(rows.values())))
        reference = against or cell.reference
        compared = runs.line(rows[reference]).errors if reference and reference != cell.row else {}
        teacher = cell.jobs[0].needs
        lines.append(
            replace(
                line,
                reference="" if reference == cell.row and not cell.paper_setting else reference,
                difference=paired(line.errors, compared),
                won=seeds_won(paired_differences(line.errors, compared)),
                cost=cost_ratio(line.finished, first.finished, runs.state(teacher).result if teacher else None),
                further=further_readings(experiment, cell, list(line.finished.values())),
            )
        )
    return lines


def compare_primary(protocol: Study, everything: Sequence[ResultCell], runs: ResultRuns) -> list[ComparisonResult]:
    """Return all primary comparisons; p is adjusted over the whole family, whatever there is of each."""
    errors = {cell.row: runs.line(cell).errors for cell in everything}
    results = []
    for _, family in groupby(protocol.primary, key=lambda pair: pair.family):
        pairs = list(family)
        differences = {pair: paired_differences(errors[pair.row], errors[pair.reference]) for pair in pairs}
        p_values = {pair.name: p for pair, each in differences.items() if (p := sign_flip_p(each)) is not None}
        adjusted = holm_adjusted(p_values, len(pairs))
        results += [
            ComparisonResult(
                pair.row,
                pair.reference,
                pair.family,
                family_size=len(pairs),
                seeds=len(protocol.seeds["study"]),
                difference=paired(errors[pair.row], errors[pair.reference]),
                won=seeds_won(differences[pair]),
                p=p_values.get(pair.name),
                adjusted=adjusted.get(pair.name),
                by_seed=tuple(differences[pair]),
            )
            for pair in pairs
        ]
    return results


def screening_lines(protocol: Protocol, cells: Sequence[ResultCell], runs: ResultRuns) -> list[ResultLine]:
    """Return a line for each row and probability; one is chosen when all planned runs of the row are finished.

    It is the one with the lowest mean error; of equal ones the lower probability.
    """
    lines: list[ResultLine] = []
    for _, group in groupby(map(runs.line, cells), key=lambda line: line.row):
        own = list(group)
        complete = all(line.error.count == len(protocol.seeds["screening"]) for line in own)
        best = min(own, key=lambda line: (round(line.error.mean, 9), line.cell.probability)) if complete else None
        lines += [replace(line, chosen=line is best) for line in own]
    return lines
