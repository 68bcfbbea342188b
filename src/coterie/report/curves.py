"""Numbers over the epochs become curves and figures: errors, losses, learning rates, diversity, cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..methods.losses import ramp_up
from ..metrics.seeds import Spread
from ..runs.reader import Record, score
from .charts import COLOURS, DASHES, Curve, in_words, line_chart
from .content import Figure, ReportSection
from .groups import Group, RecordNumber, deployed_error, has_one_seed, settings
from .score_columns import error_heading

POINTS = 150
"""A curve of more epochs is thinned to this many points, its last one kept."""
KINDS = {
    "peer1": "raw peer 1",
    "mean1": "mean peer 1",
    "raw_ensemble": "ensemble of raw peers",
    "mean_ensemble": "ensemble of mean peers",
    "ensemble": "ensemble",
}


def curves_section(groups: Sequence[Group]) -> ReportSection:
    """Show errors of the deployed network and of every kind of predictor, loss terms, learning rate, ramp-up."""
    lead = "A line is the mean over the seeds, its band reaches from the lowest to the highest."
    if has_one_seed(groups):
        lead = "A line is one seed."
    section = ReportSection("curves", "Curves", lead)
    axes = [TimeAxis(same) for same in settings(groups).values()]
    for axis in axes:
        errors = axis.curves(lambda g: deployed_error)
        section.blocks += axis.figures(
            "error", "Error of the deployed network", errors, error_heading(axis.groups)
        )
        closer = [curve.after(axis.half) for curve in errors]
        if max((len(curve.x) for curve in closer), default=0) >= 4:
            section.blocks += axis.figures(
                "second-half", "Second half of the training", closer, error_heading(axis.groups)
            )
    for g in groups:
        predictors = {name for run in g.counted for name in run.last["predictors"]}
        kinds = {label: predictor_error(name) for name, label in KINDS.items() if name in predictors}
        if len(kinds) > 1:
            section.blocks += _recipe_figures(
                g, "predictors", "Raw, mean and ensemble predictors", kinds, error_heading([g]), len(DASHES)
            )
    for g in groups:
        terms = list(dict.fromkeys(n for run in g.runs for r in run.records for n in r["terms"]))
        if len(terms) == 2:  # the loss and its only term are the same
            terms = terms[:1]
        values = {name: part("terms", name) for name in terms}
        section.blocks += _recipe_figures(g, "loss-terms", "Loss terms", values, "loss")
    for axis in axes:
        rates = merged(axis.curves(lambda g: lambda record: record.get("lr"), dashed=True))
        section.blocks += axis.figures("learning-rate", "Learning rate", rates, "learning rate")
        weights = merged(axis.curves(_ramp, dashed=True))
        title = "Distillation weight (ramp-up, Eq. 6)"
        section.blocks += axis.figures("ramp-up", title, weights, "w(e)", False)
    return section


def diversity_section(groups: Sequence[Group]) -> ReportSection:
    """Show how far the peers are from each other over time, and what their ensemble makes of it (Fig. 4)."""
    lead = (
        "Peers that say the same teach each other nothing. Diversity is the branch variance of Fig. 4: "
        "the L2 distance between the probabilities of two peers, averaged over pairs and images."
    )
    section = ReportSection("diversity", "Peers: diversity and agreement", lead)
    for same in settings(groups).values():
        axis = TimeAxis(same)
        several = any(g.several_labels for g in same)
        agreed = "classes of which both say the same, %" if several else "same class named, %"
        for key, y, factor in (("diversity", "L2 distance", 1), ("agreement", agreed, 100)):
            curves = [
                axis.curve(g, f"{g.label}, {name} peers", part(key, kind, factor), colour, dash)
                for colour, g in enumerate(same)
                for dash, (kind, name) in enumerate((("peer", "raw"), ("mean", "mean")))
            ]
            section.blocks += axis.figures(key, f"{key.capitalize()} of peers", curves, y, False)
        accuracies = axis.curves(lambda g: _ensemble_accuracy)
        title, y = ("mAP of the ensemble", "mAP %") if several else ("Accuracy of the ensemble", "accuracy %")
        section.blocks += axis.figures("ensemble", title, accuracies, y, False)
    return section


def cost_figures(groups: Sequence[Group], unit: str, unit_seconds: float) -> list[Figure]:
    """Draw the error of the groups of one setting over multiply-adds and over the clock."""
    by_macs: list[Curve] = []
    by_clock: list[Curve] = []
    for colour, g in enumerate(groups):
        errors, macs = g.curve(deployed_error), g.epoch_macs
        spent = {} if macs is None else {epoch: epoch * macs for epoch in errors}
        clock = {epoch: seconds.mean / unit_seconds for epoch, seconds in g.elapsed().items()}
        for curves, cost in ((by_macs, spent), (by_clock, clock)):
            points = thinned([(cost[epoch], error.mean) for epoch, error in errors.items() if epoch in cost])
            x, y = [cost for cost, _ in points], [error for _, error in points]
            curves.append(Curve(g.label, x, y, colour=colour, dash=colour // COLOURS))
    setting = groups[0].setting
    return [
        *figures(
            "computation", f"Error over computation, {setting}", by_macs, error_heading(groups), x="training MACs"
        ),
        *figures("time", f"Error over time, {setting}", by_clock, error_heading(groups), x=f"{unit} of training"),
    ]


class TimeAxis:
    """The x axis of a setting's groups: epochs, or per cent of the training if its lengths differ."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        lengths = {g.planned_epochs for g in groups if g.counted}
        self.parts = len(lengths) > 1 and None not in lengths
        self.name = "% of the training" if self.parts else "epoch"
        self.half = 50.0 if self.parts else max((length or 0 for length in lengths), default=0) / 2

    def curve(self, g: Group, name: str, value: RecordNumber, colour: int, dash: int) -> Curve:
        scale = 100 / g.planned_epochs if self.parts and g.planned_epochs else 1.0
        return banded(name, g.curve(value), colour, dash, scale)

    def curves(self, value: Callable[[Group], RecordNumber], dashed: bool = False) -> list[Curve]:
        """Return a curve of each group; `dashed` ones differ in their strokes too, for they often coincide."""
        return [
            self.curve(g, g.label, value(g), i, i % len(DASHES) if dashed else i // COLOURS)
            for i, g in enumerate(self.groups)
        ]

    def figures(
        self, name: str, title: str, curves: Sequence[Curve], y: str, log: bool | None = None
    ) -> list[Figure]:
        return figures(name, f"{title}, {self.groups[0].setting}", curves, y, log, self.name)


def _recipe_figures(
    g: Group, name: str, title: str, values: Mapping[str, RecordNumber], y: str, dashes: int = 1
) -> list[Figure]:
    """Draw several numbers of one recipe."""
    curves = [banded(key, g.curve(value), i, i % dashes) for i, (key, value) in enumerate(values.items())]
    return figures(name, f"{title}: {g.label}, {g.setting}", curves, y, detail=True)


def merged(curves: Sequence[Curve]) -> list[Curve]:
    """Return each curve once, under the names of all that are the same."""
    equal: dict[tuple[tuple[float, ...], ...], list[Curve]] = {}
    for curve in curves:
        equal.setdefault((tuple(curve.x), tuple(curve.y)), []).append(curve)
    return [replace(same[0], name=_enumerate([curve.name for curve in same])) for same in equal.values()]


def _enumerate(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _ramp(g: Group) -> RecordNumber:
    """Return w(e) by the options of the method; nothing where it has none."""
    method = g.runs[0].config.get("method")
    options = method.get("init_args") if isinstance(method, dict) else None
    options = options if isinstance(options, dict) else {}
    length = g.runs[0].resolved.get("method.ramp_up", options.get("ramp_up"))
    weight = options.get("weight", 1.0)
    if not isinstance(length, (int, float)) or not isinstance(weight, (int, float)):
        return lambda record: None
    return lambda record: ramp_up(record["epoch"], length, weight)


def _ensemble_accuracy(record: Record) -> float | None:
    error = score(record, "ensemble", "error")
    return None if error is None else 100 - error


def predictor_error(name: str) -> RecordNumber:
    return lambda record: score(record, name, "error")


def part(key: str, kind: str, factor: float = 1.0) -> RecordNumber:
    return lambda record: factor * record[key][kind] if kind in record[key] else None


def banded(name: str, points: Mapping[int, Spread], colour: int = 0, dash: int = 0, scale: float = 1.0) -> Curve:
    """Return the mean over the epochs, times `scale`, as a curve with the band of its seeds."""
    kept = thinned(list(points.items()))
    several = any(s.count > 1 for _, s in kept)
    return Curve(
        name,
        [scale * epoch for epoch, _ in kept],
        [s.mean for _, s in kept],
        [min(s.values) for _, s in kept] if several else (),
        [max(s.values) for _, s in kept] if several else (),
        colour,
        dash,
    )


def thinned(points: list[Any]) -> list[Any]:
    stride = math.ceil(len(points) / POINTS) or 1
    return points[(len(points) - 1) % stride :: stride]


def figures(
    name: str,
    title: str,
    curves: Sequence[Curve],
    y: str,
    log: bool | None = None,
    x: str = "epoch",
    detail: bool = False,
) -> list[Figure]:
    """Return a figure of those curves that have points, or none; on a log scale if the values span much."""
    drawn = [curve for curve in curves if curve.y]
    if not drawn:
        return []
    values = [v for curve in drawn for v in (*curve.y, *curve.low)]
    if log is None:
        log = min(values) > 0 and max(values) > 8 * min(values)
    legend = [(curve.name, curve.css) for curve in drawn]
    return [Figure(name, title, line_chart(title, drawn, x, y, log), in_words(drawn, x, y), "", legend, detail)]
