"""Runs become the sections of a report: which tables and figures there are, and every number in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .charts import Line, Point, lines, scatter
from .content import Cell, Figure, Section, Table, number, spread, text
from .runs import Group, Record, Spread, score

POINTS = 200
"""A curve of more epochs is thinned to this many points, its last one kept."""


def settings(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each network and data set: only these are compared with each other."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.setting, []).append(group)
    return found


def reference(groups: Sequence[Group]) -> Group | None:
    """What the others are compared with: the first Baseline."""
    return next((g for g in groups if g.method == "Baseline" and g.error().count), None)


def summary(groups: Sequence[Group]) -> list[str]:
    """What was trained and how much better it is, for somebody who reads nothing else."""
    return [sentence for same in settings(groups).values() for sentence in _story(same)]


def _story(groups: Sequence[Group]) -> list[str]:
    setting, base = groups[0].setting, reference(groups)
    scored = [g for g in groups if g.error().count]
    if not scored:
        return [f"{setting}: no run has finished an epoch yet."]
    others = [g for g in scored if g is not base]
    best = min(others or scored, key=lambda g: g.error().mean)
    if base is None or not others:
        return [
            f"{setting}: trained with {best.label}, the network errs on {_percent(best.error())} of the test images."
        ]
    ours, theirs = best.error(), base.error()
    better = theirs.mean - ours.mean
    change = abs(better) / theirs.mean * 100 if theirs.mean else 0.0
    verdict = f"{change:.0f} % {'fewer' if better >= 0 else 'more'} errors"
    doubt = [s.std for s in (ours, theirs) if s.std is not None]
    if len(doubt) < 2:
        caveat = " (one seed: how much of this is chance is unknown)"
    elif abs(better) < max(doubt):
        caveat = " (less than the spread between seeds)"
    else:
        caveat = ""
    return [
        f"{setting}: trained with {best.label} the same network errs on {_percent(ours)} of the test images, "
        f"alone ({base.label}) on {_percent(theirs)}: {verdict}{caveat}."
    ]


def _percent(value: Spread) -> str:
    return f"{value.text()} %"


def results(groups: Sequence[Group]) -> Section:
    """One row per recipe: the errors that count, with their seeds."""
    columns = ["network and data", "method", "seeds", "epochs", "error %", "against Baseline", "top-5 error %"]
    columns += ["ensemble error %", "NLL", "calibration error", "minutes"]
    rows = []
    for setting, same in settings(groups).items():
        base = reference(same)
        best = min((g.error().mean for g in same if g.error().count), default=math.nan)
        for g in same:
            error = g.error()
            gain = error.mean - base.error().mean if base is not None and error.count else None
            epochs = max((len(r.records) for r in g.counted), default=0)
            unfinished = "" if g.finished else " so far"
            rows.append(
                [
                    text(setting),
                    text(g.label),
                    number(len(g.counted), "{:.0f}"),
                    Cell(f"{epochs}{unfinished}", epochs),
                    spread(error, strong=error.mean == best),
                    number(gain, "{:+.2f}") if g is not base else text("–"),
                    spread(g.final(lambda r: score(r, r["deployed"], "top5_error"))),
                    spread(g.error("ensemble")),
                    spread(g.final(lambda r: score(r, r["deployed"], "nll")), 3),
                    spread(g.final(lambda r: score(r, r["deployed"], "ece")), 4),
                    spread(Spread.of(minutes(run.records) for run in g.counted)),
                ]
            )
    note = (
        "Error of the network that is deployed, on the test set after the last epoch: mean ± sample standard "
        "deviation over the seeds. Minutes are training time by the clock, without evaluation."
    )
    return Section("results", "Results", "", [Table("Results", columns, rows, note)])


def minutes(records: Sequence[Record]) -> float:
    return sum(float(r["time"].get("train", math.nan)) for r in records) / 60


def curves(groups: Sequence[Group]) -> Section:
    """Errors of the deployed network and of every kind of predictor, loss terms, learning rate."""
    section = Section(
        "curves", "Curves", "A line is the mean over the seeds, its band reaches from the lowest to the highest."
    )
    for setting, same in settings(groups).items():
        section.blocks += figures(
            f"Test error, {setting}",
            [curve(g, g.label, deployed_error, look) for look, g in enumerate(same)],
            "error %",
            "Of the network that is deployed.",
        )
    for setting, same in settings(groups).items():
        for g in same:
            where = f"{g.label}, {setting}"
            kinds = [(n, dash) for n, dash in (("peer1", 0), ("mean1", 1), ("raw_ensemble", 2), ("ensemble", 0))]
            series = [
                curve(g, name, of_predictor(name), look, dash)
                for look, (name, dash) in enumerate(kinds)
                if name in g.predictors()
            ]
            if len(series) > 1:
                section.blocks += figures(f"Raw, mean and ensemble predictors: {where}", series, "error %")
            names = list(dict.fromkeys(n for run in g.runs for r in run.records for n in r["terms"]))
            series = [curve(g, name, of_part("terms", name), look) for look, name in enumerate(names)]
            section.blocks += figures(f"Loss terms: {where}", series, "loss")
    for setting, same in settings(groups).items():
        rate = [curve(g, g.label, lambda r: r.get("lr"), look) for look, g in enumerate(same)]
        section.blocks += figures(f"Learning rate, {setting}", rate, "learning rate", log=True)
    return section


def diversity(groups: Sequence[Group]) -> Section:
    """How far the peers are from each other over time (Fig. 4)."""
    section = Section(
        "diversity",
        "Peers: diversity and agreement",
        "Peers that say the same teach each other nothing. Diversity is the branch variance of the paper's "
        "Fig. 4: the distance between the softmax outputs of two peers, averaged over pairs and test images.",
    )
    for setting, same in settings(groups).items():
        for key, y, factor in (("diversity", "L2 distance", 1), ("agreement", "same class named, %", 100)):
            series = [
                curve(
                    g,
                    f"{g.label}, {'raw' if kind == 'peer' else kind} peers",
                    of_part(key, kind, factor),
                    look,
                    dash,
                )
                for look, g in enumerate(same)
                for dash, kind in enumerate(("peer", "mean"))
            ]
            section.blocks += figures(f"{key.capitalize()} of peers, {setting}", series, y)
    return section


def of_predictor(name: str) -> Callable[[Record], float | None]:
    return lambda record: score(record, name, "error")


def of_part(key: str, kind: str, factor: float = 1.0) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        found = record[key].get(kind)
        return None if found is None else factor * found

    return value


def deployed_error(record: Record) -> float | None:
    return score(record, record["deployed"], "error")


def curve(g: Group, name: str, value: Callable[[Record], float | None], look: int = 0, dash: int = 0) -> Line:
    """A number over the epochs, as a line with the band of its seeds."""
    found = list(g.curve(value).items())
    if len(found) > POINTS:
        stride = math.ceil(len(found) / POINTS)
        found = found[(len(found) - 1) % stride :: stride]
    banded = any(s.count > 1 for _, s in found)
    return Line(
        name,
        [float(epoch) for epoch, _ in found],
        [s.mean for _, s in found],
        [min(s.values) for _, s in found] if banded else (),
        [max(s.values) for _, s in found] if banded else (),
        look,
        dash,
    )


def figures(title: str, series: Sequence[Line], y: str, note: str = "", log: bool = False) -> list[Figure]:
    """One figure of those series that have points; none where there are none."""
    drawn = [s for s in series if s.y]
    if not drawn:
        return []
    return [Figure(title, lines(title, drawn, "epoch", y, log), note, [(s.name, s.css) for s in drawn])]


def clock(groups: Sequence[Group]) -> list[Figure]:
    """Error over training time."""
    found = []
    for setting, same in settings(groups).items():
        points = []
        for look, g in enumerate(same):
            error, time = g.error(), Spread.of(minutes(run.records) for run in g.counted)
            if error.count and time.count:
                tip = f"{g.label}: error {error.text()} %, {time.text()} minutes"
                points.append(Point(g.label, time.mean, error.mean, tip, error.std or 0.0, look))
        if points:
            title = f"Error over training time, {setting}"
            found.append(Figure(title, scatter(title, points, "minutes of training", "error %")))
    return found


def cost(groups: Sequence[Group]) -> Section:
    return Section(
        "cost",
        "Cost against accuracy",
        "Peers cost training time, not deployment: the deployed network is the same.",
        list(clock(groups)),
    )


def provenance(groups: Sequence[Group]) -> Section:
    """Where every number comes from: directories, seeds, commands, machines, and what is wrong."""
    columns = ["run", "method", "seed", "epochs", "state", "command"]
    rows, machines = [], []
    for g in groups:
        for run in g.runs:
            state = "; ".join(run.problems) or "complete"
            command = run.environment.get("command", "–")
            epochs = number(len(run.records), "{:.0f}")
            seed = Cell(str(run.seed), run.seed if isinstance(run.seed, int) else None)
            rows.append([text(run.path), text(g.label), seed, epochs, text(state), text(command)])
            env = {k: v for k, v in run.environment.items() if k not in ("command", "seed", "date")}
            if env and env not in machines:
                machines.append(env)
    keys = list(dict.fromkeys(k for env in machines for k in env))
    tables = [Table("Runs", columns, rows)]
    if machines:
        tables.append(
            Table(
                "Environment",
                keys,
                [[text("–" if env.get(k) is None else env[k]) for k in keys] for env in machines],
            )
        )
    return Section("runs", "Runs, seeds, commands, environment", "", list(tables))
