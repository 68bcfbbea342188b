"""The figures as pictures, drawn from whatever epochs there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..experiments.state import state
from ..metrics.seeds import Spread
from ..runs.reader import Record
from .results import accuracy_of, branch_variance, common_seeds, curve, error_of
from .study_results import StudyLine
from .tables import Cell


def draw(experiment: str, cells: Sequence[Cell], out: Path) -> Path | None:
    """fig3, fig4 or fig5 as an SVG file in `out`; None for a table, or as long as there is nothing to draw."""
    pictures: dict[str, Callable[[Any, Sequence[Cell], Path], bool]] = {
        "fig3": _errors,
        "fig4": _ensembles,
        "fig5": _peers,
    }
    if experiment not in pictures:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    if not pictures[experiment](figure, cells, out):
        return None
    figure.suptitle(f"Fig. {experiment[-1]}: {cells[0].setting.title}")
    first = figure.axes[0]
    if first.get_legend_handles_labels()[0]:
        first.legend()
    return _save(figure, experiment, out)


def draw_split(lines: Sequence[StudyLine], title: str, out: Path) -> Path | None:
    """The study's split as split.svg in `out`: each row's difference to its reference; None without any."""
    from matplotlib.figure import Figure

    compared = [line for line in lines if line.difference is not None]
    if not compared:
        return None
    figure = Figure(figsize=(9, 1.5 + 0.4 * len(compared)), layout="constrained")
    axes = figure.subplots()
    for line in reversed(compared):  # the first row stands on top
        assert line.difference is not None
        name = f"{line.row} - {line.reference}\n{line.isolates}"
        axes.errorbar(line.difference.mean, name, xerr=line.difference.half_width, fmt="o", capsize=4, color="C0")
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.tick_params(axis="y", labelsize="small")
    axes.set(xlabel="difference in top-1 error (points, 95 % interval; left of zero: fewer errors)")
    figure.suptitle(title, fontsize="medium")
    return _save(figure, "split", out)


def _save(figure: Any, name: str, out: Path) -> Path:
    from matplotlib import rc_context

    file = out / f"{name}.svg"
    with rc_context({"svg.hashsalt": name}):  # the same numbers make the same file
        figure.savefig(file, metadata={"Date": None})
    return file


def _typeset(row: str) -> str:
    """`+ L_ce^p` with the paper's sub- and superscript."""
    return re.sub(r"L_(\w+?)(\^\w)?\b", r"$L_{\1}\2$", row)


def _plot(axes: Any, name: str, points: dict[int, Spread], **style: Any) -> bool:
    """Mean and, as a band, one standard deviation to each side."""
    if not points:
        return False
    epochs = list(points)
    means = [spread.mean for spread in points.values()]
    deviations = [spread.std or 0.0 for spread in points.values()]
    (drawn,) = axes.plot(epochs, means, label=_typeset(name), linewidth=1.2, **style)
    low = [m - s for m, s in zip(means, deviations, strict=True)]
    high = [m + s for m, s in zip(means, deviations, strict=True)]
    axes.fill_between(epochs, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
    return True


def _errors(figure: Any, cells: Sequence[Cell], out: Path) -> bool:
    """The weights that are deployed, as the paper has it, and beside them the averaged ones of every row."""
    figure.set_figwidth(11)
    left, right = figure.subplots(1, 2, sharey=True)
    drawn = []
    for number, cell in enumerate(common_seeds(cells, out)):
        drawn.append(_plot(left, cell.row, curve(cell, out, error(cell)), color=f"C{number}"))
        _plot(right, cell.row, curve(cell, out, averaged_error), color=f"C{number}")
    left.set(xlabel="epoch", ylabel="top-1 error (%)", title="as deployed: PCL averaged, the others raw")
    right.set(xlabel="epoch", title="averaged weights in all rows")
    return any(drawn)


def _ensembles(figure: Any, cells: Sequence[Cell], out: Path) -> bool:
    """Accuracies, and beside them the trained branches' variances, in the same colours."""
    figure.set_figwidth(11)
    left, right = figure.subplots(1, 2)
    drawn = []
    for number, cell in enumerate(common_seeds(cells, out)):
        drawn.append(_plot(left, cell.row, curve(cell, out, accuracy(cell)), color=f"C{number}"))
        _plot(right, cell.row, curve(cell, out, branch_variance("peer")), color=f"C{number}")
    left.set(xlabel="epoch", ylabel="ensemble's top-1 accuracy (%)")
    right.set(xlabel="epoch", ylabel="branch variance of the trained weights")
    return any(drawn)


def _peers(figure: Any, cells: Sequence[Cell], out: Path) -> bool:
    """Points, not bars: the axis does not begin at zero. The variant without augmentation stands last."""
    axes = figure.subplots()
    finished = [cell for cell in common_seeds(cells, out, kinds=("done",)) if cell.jobs]
    for cell in sorted(finished, key=lambda cell: ("," in cell.row, cell.row)):
        errors = Spread.of(error_of(state(out, job).result.last, cell.predictor) for job in cell.jobs)
        name = cell.row.replace("3 peers, w/o InAu", "3 peers,\none view for all")
        axes.errorbar(name, errors.mean, errors.std, fmt="o", capsize=4, color="C0")
    axes.margins(x=0.15)
    axes.set(ylabel="top-1 error (%)", title="mean and standard deviation over the seeds that all have")
    return bool(finished)


def error(cell: Cell) -> Callable[[Record], float | None]:
    return lambda record: error_of(record, cell.predictor)


def averaged_error(record: Record) -> float | None:
    return error_of(record, "mean1")


def accuracy(cell: Cell) -> Callable[[Record], float | None]:
    return lambda record: accuracy_of(record, cell.predictor)
