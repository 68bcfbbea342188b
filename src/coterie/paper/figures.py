"""The figures as pictures, drawn from whatever epochs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..experiments.state import state
from ..metrics.seeds import Spread
from ..report.charts import Curve, Dot, dot_chart, dot_chart_height, line_chart
from ..report.picture import Panel, picture
from ..runs.reader import Record
from .results import accuracy_of, branch_variance, common_seeds, curve, error_of
from .study_results import StudyLine
from .tables import Cell

Value = Callable[[Record], float | None]
Drawing = tuple[list[Panel], list[tuple[str, str]]]
"""Panels, and the legend of both."""


def draw(experiment: str, cells: Sequence[Cell], out: Path) -> Path | None:
    """Draw fig3, fig4 or fig5 as an SVG file in `out`; return None for a table, or if there is nothing to draw."""
    drawings: dict[str, Callable[[Sequence[Cell], Path], Drawing]] = {
        "fig3": _errors,
        "fig4": _ensembles,
        "fig5": _peers,
    }
    if experiment not in drawings:
        return None
    panels, legend = drawings[experiment](cells, out)
    if not panels:
        return None
    title = f"Fig. {experiment[-1]}: {cells[0].setting.title}"
    return _save(picture(title, panels, legend), experiment, out)


def draw_split(rows: Sequence[StudyLine], title: str, out: Path) -> Path | None:
    """Draw each row's difference to its reference as split.svg in `out`; return None without any."""
    compared = [
        (f"{row.row} - {row.reference}\n{row.isolates}", [_dot(row.difference.mean, row.difference.half_width)])
        for row in rows
        if row.difference is not None
    ]
    if not compared:
        return None
    x = "difference in top-1 error (points, 95 % interval; left of zero: fewer errors)"
    panel = Panel(dot_chart(title, compared, x, left=370, width=920), dot_chart_height(len(compared)), width=920)
    return _save(picture(title, [panel]), "split", out)


def _save(svg: str, name: str, out: Path) -> Path:
    file = out / f"{name}.svg"
    file.write_text(svg)
    return file


def _dot(mean: float, half_width: float | None) -> Dot:
    return Dot(mean) if half_width is None else Dot(mean, mean - half_width, mean + half_width, colour=2)


def _line(name: str, points: dict[int, Spread], colour: int) -> Curve:
    """The mean and, as a band, one standard deviation to each side."""
    means = [spread.mean for spread in points.values()]
    deviations = [spread.std or 0.0 for spread in points.values()]
    low = [mean - deviation for mean, deviation in zip(means, deviations, strict=True)]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    return Curve(name, list(points), means, low, high, colour)


def _curves(cells: Sequence[Cell], out: Path, value: Callable[[Cell], Value]) -> list[Curve]:
    series = [_line(cell.row, curve(cell, out, value(cell)), colour) for colour, cell in enumerate(cells)]
    return [line for line in series if line.y]


def _errors(cells: Sequence[Cell], out: Path) -> Drawing:
    """Draw the weights that are deployed, as the paper does, and beside them the averaged ones of every row."""
    compared, y = common_seeds(cells, out), "top-1 error (%)"
    deployed = _curves(compared, out, error)
    averaged = _curves(compared, out, lambda cell: averaged_error)
    panels = [
        Panel(line_chart(heading, series, "epoch", y, beside=other), heading=heading)
        for heading, series, other in (
            ("as deployed: PCL averaged, the others raw", deployed, averaged),
            ("averaged weights in all rows", averaged, deployed),
        )
        if series
    ]
    return panels, [(line.name, line.css) for line in deployed]


def _ensembles(cells: Sequence[Cell], out: Path) -> Drawing:
    """Draw accuracies, and beside them the trained branches' variances, in the same colours."""
    compared = common_seeds(cells, out)
    accuracies = _curves(compared, out, accuracy)
    variances = _curves(compared, out, lambda cell: branch_variance("peer"))
    panels = [
        Panel(line_chart(y, series, "epoch", y))
        for y, series in (
            ("ensemble's top-1 accuracy (%)", accuracies),
            ("branch variance of the trained weights", variances),
        )
        if series
    ]
    return panels, [(line.name, line.css) for line in accuracies]


def _peers(cells: Sequence[Cell], out: Path) -> Drawing:
    """Draw points, not bars: the axis does not begin at zero. The variant without augmentation stands last."""
    finished = [cell for cell in common_seeds(cells, out, kinds=("done",)) if cell.jobs]
    if not finished:
        return [], []
    rows = []
    for cell in sorted(finished, key=lambda cell: ("," in cell.row, cell.row)):
        errors = Spread.of(error_of(state(out, job).result.last, cell.predictor) for job in cell.jobs)
        name = cell.row.replace("3 peers, w/o InAu", "3 peers\none view for all")
        rows.append((name, [_dot(errors.mean, errors.std)]))
    heading = "mean and standard deviation over the seeds that all have"
    return [
        Panel(dot_chart(heading, rows, "top-1 error (%)", left=130), dot_chart_height(len(rows)), heading=heading)
    ], []


def error(cell: Cell) -> Value:
    return lambda record: error_of(record, cell.predictor)


def averaged_error(record: Record) -> float | None:
    return error_of(record, "mean1")


def accuracy(cell: Cell) -> Value:
    return lambda record: accuracy_of(record, cell.predictor)
