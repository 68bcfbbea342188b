"""What the scores of one label, or of several labels an image are called, and which columns they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .groups import Group
from .table import Cell, spread

Column = Callable[[Group, Group | None], Cell]
"""Makes a cell of a group and the reference of its setting."""
SEVERAL_LABELS = (
    " Where images have several labels, the error is 100 − mAP, the mean over the classes of their average "
    "precision; F1 is that of labels with a probability above 0.5."
)


def error_heading(groups: Iterable[Group]) -> str:
    """Return what to call the error of these groups."""
    several = {g.several_labels for g in groups}
    if several == {True}:
        return "100 − mAP"
    return "error % (several labels: 100 − mAP)" if len(several) > 1 else "error %"


def balanced_column(groups: Sequence[Group]) -> dict[str, Column]:
    if groups and all(g.several_labels for g in groups):
        return {}
    return {"balanced error %": lambda g, _: spread(g.final("balanced_error"))}


def other_scores(groups: Sequence[Group]) -> dict[str, Column]:
    """Return the columns of scores that only one label, or several labels an image have."""
    columns: dict[str, Column] = {}
    if not groups or not all(g.several_labels for g in groups):
        columns["top-5 error %"] = lambda g, _: spread(g.final("top5_error"))
    if any(g.several_labels for g in groups):
        columns["macro F1 %"] = lambda g, _: spread(g.final("macro_f1"))
        columns["micro F1 %"] = lambda g, _: spread(g.final("micro_f1"))
    return columns
