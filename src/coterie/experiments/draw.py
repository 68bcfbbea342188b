"""The figures as pictures, drawn from whatever epochs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..report.runs import Record
from ..statistics import Spread
from .results import Line, accuracy_of, branch_variance, curve, error_of
from .tables import Cell


def draw(experiment: str, cells: Sequence[Cell], found: Sequence[Line], out: Path) -> Path | None:
    """fig3, fig4 or fig5 as an SVG file in `out`; None for a table, or as long as there is nothing to draw."""
    pictures: dict[str, Callable[[Any, Sequence[Cell], Sequence[Line], Path], bool]] = {
        "fig3": _errors,
        "fig4": _ensembles,
        "fig5": _bars,
    }
    if experiment not in pictures:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if not pictures[experiment](axes, cells, found, out):
        return None
    axes.set_title(f"{experiment}: {cells[0].setting.title}")
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    file = out / f"{experiment}.svg"
    figure.savefig(file)
    return file


def _plot(axes: Any, name: str, points: dict[int, Spread], **style: Any) -> bool:
    """Mean and, as a band, one standard deviation to each side."""
    if not points:
        return False
    epochs = list(points)
    means = [spread.mean for spread in points.values()]
    deviations = [spread.std or 0.0 for spread in points.values()]
    (drawn,) = axes.plot(epochs, means, label=name, linewidth=1.2, **style)
    low = [m - s for m, s in zip(means, deviations, strict=True)]
    high = [m + s for m, s in zip(means, deviations, strict=True)]
    axes.fill_between(epochs, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
    return True


def _errors(axes: Any, cells: Sequence[Cell], found: Sequence[Line], out: Path) -> bool:
    drawn = [_plot(axes, cell.row, curve(cell, out, error(cell))) for cell in cells]
    axes.set(xlabel="epoch", ylabel="top-1 error (%)")
    return any(drawn)


def _ensembles(axes: Any, cells: Sequence[Cell], found: Sequence[Line], out: Path) -> bool:
    """Accuracies, and on an axis of their own the branch variances, in the same colours."""
    right = axes.twinx()
    drawn = []
    for number, cell in enumerate(cells):
        colour = f"C{number}"
        drawn.append(_plot(axes, cell.row, curve(cell, out, accuracy(cell)), color=colour))
        _plot(right, cell.row, curve(cell, out, branch_variance), color=colour, linestyle="--")
    axes.set(xlabel="epoch", ylabel="ensemble's top-1 accuracy (%)")
    right.set_ylabel("branch variance (dashed)")
    return any(drawn)


def _bars(axes: Any, cells: Sequence[Cell], found: Sequence[Line], out: Path) -> bool:
    lines = sorted((line for line in found if line.error.count), key=lambda line: line.row)
    names = [line.row for line in lines]
    axes.bar(names, [line.error.mean for line in lines], yerr=[line.error.std or 0.0 for line in lines], capsize=4)
    low = min((line.error.mean - 2 * (line.error.std or 1.0) for line in lines), default=0.0)
    axes.set_ylim(bottom=max(0.0, low - 1))
    axes.set_ylabel("top-1 error (%)")
    return bool(lines)


def error(cell: Cell) -> Callable[[Record], float | None]:
    return lambda record: error_of(record, cell.predictor)


def accuracy(cell: Cell) -> Callable[[Record], float | None]:
    return lambda record: accuracy_of(record, cell.predictor)
