"""The figures as pictures, drawn from whatever epochs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ..files import write
from ..metrics.seeds import Spread
from ..report.charts import Curve, Dot, dot_chart, dot_chart_height, line_chart
from ..report.picture import Panel, picture
from .cells import ResultCell
from .readings import RecordValue, accuracy, averaged_error, branch_variance, deployed_error
from .result_tables import ResultTables, paper_title
from .results import ComparisonResult, ResultRuns

Drawing = tuple[list[Panel], list[tuple[str, str]]]
"""Panels, and the legend of both."""


class FigureCurve(NamedTuple):
    """A number of each epoch that a figure shows: its name on the report's page, and what it is."""

    name: str
    value: Callable[[ResultCell], RecordValue]
    y: str = ""
    """The axis of its panel in the picture; without one the page alone has it."""
    heading: str = ""


CURVES = {
    "fig3": (  # the weights that are deployed, as in the paper, and beside them the averaged ones of every row
        FigureCurve(
            "error %, as deployed", deployed_error, "top-1 error (%)", "as deployed: PCL averaged, the others raw"
        ),
        FigureCurve(
            "error %, averaged weights in all rows",
            averaged_error,
            "top-1 error (%)",
            "averaged weights in all rows",
        ),
    ),
    "fig4": (
        FigureCurve("accuracy of the ensemble, %", accuracy, "ensemble's top-1 accuracy (%)"),
        FigureCurve(
            "branch variance of the trained weights",
            branch_variance("peer"),
            "branch variance of the trained weights",
        ),
        FigureCurve("branch variance of the averaged weights", branch_variance("mean")),
    ),
}


def draw_figure(tables: ResultTables) -> Path | None:
    """Draw fig3, fig4, fig5, split or study as an SVG file beside the runs.

    Returns None for a table, or if there is nothing to draw.
    """
    drawings = {
        "fig3": _draw_curves,
        "fig4": _draw_curves,
        "fig5": _draw_peers,
        "split": _draw_split,
        "study": _draw_primary,
    }
    experiment = tables.experiment
    if experiment not in drawings:
        return None
    panels, legend = drawings[experiment](tables)
    if not panels:
        return None
    setting = tables.lines[0].setting
    titles = {"split": setting, "study": "The study's planned comparisons"}
    title = titles.get(experiment) or f"{paper_title(experiment)}: {setting}"
    file = tables.runs.out / f"{experiment}.svg"
    write(file, picture(title, panels, legend))
    return file


def _draw_split(tables: ResultTables) -> Drawing:
    """Draw each row's difference to its reference."""
    compared = [
        (
            f"{line.row} - {line.reference}\n{line.cell.table_row.isolates}",
            [_dot(line.difference.mean, line.difference.half_width)],
        )
        for line in tables.lines
        if line.difference is not None
    ]
    if not compared:
        return [], []
    x = "difference in top-1 error (points, 95 % interval; left of zero: fewer errors)"
    chart = dot_chart(tables.lines[0].setting, compared, x, left=370, width=920, through=[0.0])
    return [Panel(chart, dot_chart_height(len(compared)), width=920)], []


def _draw_primary(tables: ResultTables) -> Drawing:
    """Draw a panel for each family of planned comparisons that has runs."""
    panels: list[Panel] = []
    setting = tables.lines[0].setting
    for family, results in groupby(tables.primary, key=lambda result: result.family):
        rows, verdicts = _comparison_rows(list(results))
        if any(dots for _, dots in rows):
            x = "points of top-1 error: mean, 95 % interval, each seed (left of zero: fewer errors)"
            chart = dot_chart(
                f"{family}: {setting}", rows, x, left=186, width=712, right=222, results=verdicts, through=[0.0]
            )
            panels.append(
                Panel(chart, dot_chart_height(len(rows)), width=712, heading=family if panels else setting)
            )
    return panels, []


def _comparison_rows(results: Sequence[ComparisonResult]) -> tuple[list[tuple[str, list[Dot]]], list[str]]:
    """Return a row for each comparison, with its seeds and their mean with its interval; and what came out."""
    rows, verdicts = [], []
    for result in results:
        difference, verdict = result.difference, result.verdict
        if result.complete:
            verdict = f"{verdict}, {result.seeds} seeds"
        dots, text = [], verdict
        if difference is not None:
            dots = [replace(_dot(difference.mean, difference.half_width), colour=2, points=result.by_seed)]
            text = f"{difference.amount}\n{verdict}"
        rows.append((f"{result.row}\nminus {result.reference}", dots))
        verdicts.append(text)
    return rows, verdicts


def _dot(mean: float, half_width: float | None) -> Dot:
    return Dot(mean) if half_width is None else Dot(mean, mean - half_width, mean + half_width, 2)


def _draw_curves(tables: ResultTables) -> Drawing:
    """Draw a panel for each of the figure's curves; those of one quantity have the same axis."""
    cells = tables.runs.common_seeds([line.cell for line in tables.lines])
    drawn = [(curve, _series(cells, tables.runs, curve)) for curve in CURVES[tables.experiment] if curve.y]
    panels = [
        Panel(
            line_chart(
                curve.heading or curve.y,
                series,
                "epoch",
                curve.y,
                beside=[line for other, its in drawn if other.y == curve.y for line in its],
            ),
            heading=curve.heading,
        )
        for curve, series in drawn
        if series
    ]
    return panels, [(line.name, line.css) for line in drawn[0][1]]


def _series(cells: Sequence[ResultCell], runs: ResultRuns, curve: FigureCurve) -> list[Curve]:
    """Return a line for each cell: the mean and, as a band, one standard deviation to each side."""
    series = []
    for colour, cell in enumerate(cells):
        points = runs.curve(cell, curve.value(cell))
        means = [spread.mean for spread in points.values()]
        low = [spread.mean - (spread.std or 0.0) for spread in points.values()]
        high = [spread.mean + (spread.std or 0.0) for spread in points.values()]
        if points:
            series.append(Curve(cell.row, list(points), means, low, high, colour))
    return series


def _draw_peers(tables: ResultTables) -> Drawing:
    """Draw points, not bars: the axis does not begin at zero. The variant without augmentation stands last."""
    cells = tables.runs.common_seeds([line.cell for line in tables.lines], kinds=("done",))
    rows = []
    for cell in sorted((cell for cell in cells if cell.jobs), key=lambda cell: ("," in cell.row, cell.row)):
        errors = Spread.of(deployed_error(cell)(tables.runs.state(job).result.last) for job in cell.jobs)
        name = cell.row.replace("3 peers, w/o InAu", "3 peers\none view for all")
        rows.append((name, [_dot(errors.mean, errors.std)]))
    heading = "mean and standard deviation over the seeds that all have"
    chart = dot_chart(heading, rows, "top-1 error (%)", left=130) if rows else None
    return [Panel(chart, dot_chart_height(len(rows)), heading=heading)] if chart else [], []
