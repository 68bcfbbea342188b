"""What the records of the runs tell: the summary, results, curves, peers over time, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..methods.losses import ramp_up
from ..metrics.seeds import NOTHING, PAIRED, Spread
from ..runs.reader import Record, score
from . import table
from .charts import COLOURS, Line, in_words, lines
from .content import Figure, Section, Tile, by_setting
from .groups import Group, best, compared, difference, reference, settings, tested_on
from .table import Cell, Table, number, spread, text

POINTS = 150
"""A curve of more epochs is thinned to this many points, its last one kept."""
KINDS = {"peer1": "raw peer 1", "mean1": "mean peer 1", "raw_ensemble": "ensemble of raw peers"}
KINDS |= {"mean_ensemble": "ensemble of mean peers", "ensemble": "ensemble"}


def tiles(groups: Sequence[Group]) -> list[Tile]:
    """The numbers of the summary: the best error and its distance to the Baseline."""
    ours, base = best(groups), reference(groups)
    if ours is None:
        return []
    found = [Tile(f"{ours.error().mean:.2f} %", f"error with {ours.label}")]
    if base is not None and base is not ours:
        found.append(Tile(f"{base.error().mean:.2f} %", f"with {base.label}"))
        gap = difference(ours, base)
        if gap is not None:
            interval = "" if gap.half_width is None else f", ± {gap.half_width:.2f}"
            found.append(Tile(f"{gap.mean:+.2f}", f"points of difference{interval}"))
    return found


def summary(groups: Sequence[Group]) -> list[str]:
    """What was trained and how much better it is, for somebody who reads nothing else."""
    told = compared(groups)
    sentences = [_story(same) for same in told[:3]]
    if len(told) > 3:
        pairs = [(best(same), reference(same)) for same in told]
        gaps = [difference(a, b) for a, b in pairs if a and b and a is not b]
        known = [gap for gap in gaps if gap is not None]
        won = sum(gap.mean < 0 for gap in known)
        verdict = f"In {won} of {len(known)} such comparisons the best method errs less than the Baseline; "
        more = "1 more is" if len(told) == 4 else f"{len(told) - 3} more are"
        sentences.append((verdict if known else "") + f"{more} in the table.")
    return sentences


def besides(groups: Sequence[Group]) -> list[str]:
    """What was trained but is not compared, such as a teacher."""
    told = compared(groups)
    also = [f"{g.setting} ({g.label})" for g in groups if not any(g in same for same in told)]
    more = f" and {len(also) - 3} more" if len(also) > 3 else ""
    return [f"Trained besides: {', '.join(also[:3])}{more}."] if also else []


def _story(groups: Sequence[Group]) -> str:
    setting, base, ours = groups[0].setting, reference(groups), best(groups)
    if ours is None:
        return f"{setting}: no run has finished an epoch yet."
    here = f"{_percent(ours.error())} of the {tested_on(ours)}{_so_far(ours)}"
    if base is None or ours is base:
        return f"{setting}: trained with {ours.label}, the network errs on {here}."
    theirs = base.error()
    both = (
        f"{setting}: trained with {ours.label} the network errs on {here}, with {base.label} on {_percent(theirs)}"
    )
    gap = difference(ours, base)
    if gap is None:
        return f"{both}{_so_far(base)}: too early to compare."
    change = f"{100 * abs(gap.mean) / theirs.mean:.0f} %" if theirs.mean else f"{abs(gap.mean):.2f} points"
    if gap.half_width is None:
        caveat = "without two seeds in common, how much of this is chance is unknown"
    else:
        caveat = f"{gap.mean:+.2f} ± {gap.half_width:.2f} points, 95 % interval over {gap.count} seeds"
        caveat += "" if gap.clear else ": no clear difference"
    rivals = sum(g is not base and g.finished for g in groups)
    chosen = f" It is the lowest of {rivals} recipes, which flatters it a little." if rivals > 1 else ""
    return f"{both}: {change} {'fewer' if gap.mean <= 0 else 'more'} errors ({caveat}).{chosen}"


def _so_far(g: Group) -> str:
    return "" if g.finished else f" so far, after {g.epochs} of {g.asked or '?'} epochs"


def _percent(value: Spread) -> str:
    return f"{value.text()} %"


def results(groups: Sequence[Group]) -> Section:
    """One row per recipe: the errors that count, with their seeds."""
    columns = ["method", "error %", "balanced error %", "against Baseline", "ensemble error %", "top-5 error %"]
    columns += ["NLL", "calibration error", "seeds", "epochs"]
    rows = []
    for setting, same in settings(groups).items():
        base = reference(same)
        lowest = min((g.error().mean for g in same if g.error().count), default=math.nan)
        for g in same:
            error = g.error()
            gap = difference(g, base) if base is not None and g is not base else None
            rows.append(
                [
                    text(setting),
                    text(g.label),
                    spread(error, strong=error.mean == lowest),
                    spread(g.balanced_error()),
                    table.difference(gap),
                    spread(g.error("ensemble")),
                    spread(g.final(of_deployed("top5_error"))),
                    spread(g.final(of_deployed("nll")), 3),
                    spread(g.final(of_deployed("ece")), 4),
                    number(len(g.counted), "{:.0f}"),
                    Cell(f"{g.epochs}{'' if g.finished else ' so far'}", g.epochs),
                ]
            )
    note = (
        "Error of the network that is deployed, after the last epoch: mean ± sample standard deviation over the "
        "seeds. Never the best epoch, never the best peer. The balanced error is the mean of the classes' errors. "
        f"{PAIRED} Without a seed in common (0) the means are compared."
    )
    watched = {tested_on(g) for g in groups}
    if "held-out images" in watched:
        note += " Errors are on the images a run held out" + (
            ", for others on the test images" * (len(watched) > 1)
        )
        note += "; `coterie evaluate` looks at the test images."
    return Section("results", "Results", "", [by_setting("Results", columns, rows, note)])


def curves(groups: Sequence[Group]) -> Section:
    """Errors of the deployed network and of every kind of predictor, loss terms, learning rate, ramp-up."""
    lead = "A line is the mean over the seeds, its band reaches from the lowest to the highest."
    section = Section("curves", "Curves", lead)
    for setting, same in settings(groups).items():
        time = Time(same)
        series = [
            curve(g, g.label, of_deployed("error"), look, look // COLOURS, time.scale(g))
            for look, g in enumerate(same)
        ]
        section.blocks += figures(f"Error of the deployed network, {setting}", series, "error %", x=time.name)
        closer = [line.after(time.half) for line in series]
        if max((len(line.x) for line in closer), default=0) >= 4:
            section.blocks += figures(f"Second half of the training, {setting}", closer, "error %", x=time.name)
    for g in groups:
        names = [(name, label) for name, label in KINDS.items() if name in g.predictors()]
        series = [curve(g, label, of_predictor(name), look, look % 3) for look, (name, label) in enumerate(names)]
        if len(series) > 1:
            title = f"Raw, mean and ensemble predictors: {g.label}, {g.setting}"
            section.blocks += figures(title, series, "error %", detail=True)
    for g in groups:
        terms = list(dict.fromkeys(n for run in g.runs for r in run.records for n in r["terms"]))
        if len(terms) == 2:  # the loss and its only term are the same
            terms = terms[:1]
        series = [curve(g, name, of_part("terms", name), look) for look, name in enumerate(terms)]
        section.blocks += figures(f"Loss terms: {g.label}, {g.setting}", series, "loss", detail=True)
    for setting, same in settings(groups).items():
        time = Time(same)
        rates = [
            curve(g, g.label, lambda r: r.get("lr"), look, look % 3, time.scale(g)) for look, g in enumerate(same)
        ]
        section.blocks += figures(f"Learning rate, {setting}", merged(rates), "learning rate", x=time.name)
        weights = [_ramp(g, look, time.scale(g)) for look, g in enumerate(same)]
        title = f"Distillation weight (ramp-up, Eq. 6), {setting}"
        section.blocks += figures(title, merged(weights), "w(e)", False, time.name)
    return section


class Time:
    """What curves of several groups are drawn over: epochs, or the part that is done where these differ."""

    def __init__(self, groups: Sequence[Group]) -> None:
        lengths = {g.asked for g in groups if g.counted}
        self.parts = len(lengths) > 1 and None not in lengths
        self.name = "% of the training" if self.parts else "epoch"
        self.half = 50.0 if self.parts else max((length or 0 for length in lengths), default=0) / 2

    def scale(self, g: Group) -> float:
        return 100 / g.asked if self.parts and g.asked else 1.0


def merged(series: Sequence[Line]) -> list[Line]:
    """Each line once, under the names of all that are the same."""
    found: dict[tuple[tuple[float, ...], ...], list[Line]] = {}
    for line in series:
        found.setdefault((tuple(line.x), tuple(line.y)), []).append(line)
    return [replace(same[0], name=_together([line.name for line in same])) for same in found.values()]


def _together(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _ramp(g: Group, look: int, scale: float) -> Line:
    """w(e) from the options of the method; empty where it has none."""
    options, resolved = options_of(g), g.runs[0].resolved
    length, weight = resolved.get("method.ramp_up", options.get("ramp_up")), options.get("weight", 1.0)
    if not isinstance(length, (int, float)) or not isinstance(weight, (int, float)):
        return Line(g.label, (), ())
    return curve(g, g.label, lambda r: ramp_up(r["epoch"], length, weight), look, look % 3, scale)


def options_of(g: Group) -> dict[str, Any]:
    method = g.config.get("method")
    options = method.get("init_args") if isinstance(method, dict) else None
    return options if isinstance(options, dict) else {}


def diversity(groups: Sequence[Group]) -> Section:
    """How far the peers are from each other over time, and what their ensemble makes of it (Fig. 4)."""
    lead = (
        "Peers that say the same teach each other nothing. Diversity is the branch variance of Fig. 4: "
        "the L2 distance between the softmax outputs of two peers, averaged over pairs and images."
    )
    section = Section("diversity", "Peers: diversity and agreement", lead)
    for setting, same in settings(groups).items():
        time = Time(same)
        for key, y, factor in (("diversity", "L2 distance", 1), ("agreement", "same class named, %", 100)):
            series = [
                curve(g, f"{g.label}, {name} peers", of_part(key, kind, factor), look, dash, time.scale(g))
                for look, g in enumerate(same)
                for dash, (kind, name) in enumerate((("peer", "raw"), ("mean", "mean")))
            ]
            section.blocks += figures(f"{key.capitalize()} of peers, {setting}", series, y, False, time.name)
        ensembles = [
            curve(g, g.label, lambda r: _accuracy(r, "ensemble"), look, look // COLOURS, time.scale(g))
            for look, g in enumerate(same)
        ]
        title = f"Accuracy of the ensemble, {setting}"
        section.blocks += figures(title, ensembles, "accuracy %", False, time.name)
    return section


def _accuracy(record: Record, predictor: str) -> float | None:
    error = score(record, predictor, "error")
    return None if error is None else 100 - error


def of_deployed(metric: str) -> Callable[[Record], float | None]:
    return lambda record: score(record, record["deployed"], metric)


def of_predictor(name: str) -> Callable[[Record], float | None]:
    return lambda record: score(record, name, "error")


def of_part(key: str, kind: str, factor: float = 1.0) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        found = record[key].get(kind)
        return None if found is None else factor * found

    return value


def curve(
    g: Group,
    name: str,
    value: Callable[[Record], float | None],
    look: int = 0,
    dash: int = 0,
    scale: float = 1.0,
) -> Line:
    """A number over the epochs, times `scale`, as a line with the band of its seeds."""
    return banded(name, g.curve(value), look, dash, scale)


def banded(name: str, points: Mapping[int, Spread], look: int = 0, dash: int = 0, scale: float = 1.0) -> Line:
    found = thinned(list(points.items()))
    banded = any(s.count > 1 for _, s in found)
    return Line(
        name,
        [scale * epoch for epoch, _ in found],
        [s.mean for _, s in found],
        [min(s.values) for _, s in found] if banded else (),
        [max(s.values) for _, s in found] if banded else (),
        look,
        dash,
    )


def thinned(points: list[Any]) -> list[Any]:
    stride = math.ceil(len(points) / POINTS) or 1
    return points[(len(points) - 1) % stride :: stride]


def figures(
    title: str, series: Sequence[Line], y: str, log: bool | None = None, x: str = "epoch", detail: bool = False
) -> list[Figure]:
    """A figure of those series that have points, or none; on a log scale if the values span much."""
    drawn = [s for s in series if s.y]
    if not drawn:
        return []
    values = [v for s in drawn for v in (*s.y, *s.low)]
    if log is None:
        log = min(values) > 0 and max(values) > 8 * min(values)
    legend = [(s.name, s.css) for s in drawn]
    return [Figure(title, lines(title, drawn, x, y, log), in_words(drawn, x, y), "", legend, detail)]


def provenance(groups: Sequence[Group]) -> Section:
    """Where every number comes from: directories, seeds, commands, machines, and what is wrong."""
    rows, machines = [], []
    for g in groups:
        for run in g.runs:
            seed = Cell(str(run.seed), run.seed if isinstance(run.seed, int) else None)
            done = number(run.trained, "{:.0f}")
            state = "; ".join(run.problems) or "complete"
            command = run.environment.get("command") or NOTHING
            date = str(run.environment.get("date") or NOTHING)[:16].replace("T", " ")
            row = [text(run.path), text(g.label), seed, done, text(state), text(date), text(command)]
            rows.append(row)
            for found in run.environments:
                machine = {k: v for k, v in found.items() if k not in ("command", "seed", "date", "continued")}
                if machine and machine not in machines:
                    machines.append(machine)
    tables = [Table("Runs", ["run", "method", "seed", "epochs", "state", "date", "command"], rows)]
    if machines:
        keys = list(dict.fromkeys(key for machine in machines for key in machine))
        cells = [[text(key), *(text(_value(m.get(key))) for m in machines)] for key in keys]
        heads = ["value"] if len(machines) == 1 else [f"environment {i}" for i in range(1, len(machines) + 1)]
        tables.append(Table("Environment", ["what", *heads], cells))
    return Section("runs", "Runs, seeds, commands, environment", "", list(tables))


def _value(value: Any) -> str:
    if value is None or value == []:
        return NOTHING
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
