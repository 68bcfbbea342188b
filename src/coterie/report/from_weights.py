"""What the networks themselves tell: cost against accuracy, calibration, mistakes, views, deployment."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..metrics.seeds import NOTHING, Spread
from ..runs.reader import Record, Result, at_its_fastest
from .charts import COLOURS, Line, brief, reliability
from .content import Figure, Gallery, Section, Tile, by_setting
from .examine import Examination, Network
from .from_metrics import figures, of_deployed, thinned
from .groups import Group, best, reference, settings, tested_on
from .table import Cell, Table, number, spread, text

EXAMINED = 4
"""So many networks are looked at closely; of a larger table, the Baselines and the best come first."""


@dataclass
class Found:
    """A group together with what the examination of its first run found."""

    group: Group
    examination: Examination

    @property
    def epoch_macs(self) -> float | None:
        """Multiply-adds of one epoch of training."""
        found = self.examination
        return None if found.step_macs is None else found.step_macs * found.train_size

    @property
    def total_macs(self) -> float | None:
        epochs = self.group.epochs
        return None if self.epoch_macs is None or not epochs else self.epoch_macs * epochs

    @property
    def planned_macs(self) -> float | None:
        """Of the whole training, also while it goes on."""
        return ratio(self.epoch_macs, 1 / self.group.asked) if self.group.asked else self.total_macs

    @property
    def network(self) -> Network | None:
        """The one that is deployed."""
        return self.examination.networks.get(self.group.deployed or "")

    @property
    def seconds(self) -> Spread:
        return Spread.of(seconds(run.records) for run in self.group.counted)


def seconds(records: Sequence[Record]) -> float:
    """Training by the clock, without evaluation."""
    return sum(float(record["time"].get("train", math.nan)) for record in records)


def clock_unit(found: Sequence[Found]) -> tuple[str, float]:
    """The unit that suits the longest run, and its seconds."""
    longest = max((v for f in found for v in f.seconds.values), default=0.0)
    return next(((name, s) for name, s in (("hours", 3600), ("minutes", 60)) if longest > 3 * s), ("seconds", 1))


def chosen(groups: Sequence[Group]) -> list[Group]:
    """The groups whose weights are looked at."""
    first = [g for same in settings(groups).values() for g in (reference(same), best(same)) if g is not None]
    ordered = list({id(g): g for g in [*first, *groups]}.values())
    return ordered[:EXAMINED]


def examinee(g: Group) -> Result:
    """The run that stands for its group: the first that finished; never the best."""
    return (g.counted or g.runs)[0]


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


@dataclass
class Price:
    """What a method costs in units of the Baseline, or else of the plain network; None where it is not known."""

    training: float | None
    clock: float | None
    use: float | None


def price(found: Sequence[Found]) -> Price | None:
    """Of the best method."""
    groups = [f.group for f in found]
    ours, base = (next((f for f in found if f.group is g), None) for g in (best(groups), reference(groups)))
    if ours is None or ours is base:
        return None
    macs = None if ours.network is None else ours.network.macs
    if base is None:
        return Price(ratio(ours.examination.step_macs, ours.examination.plain_macs), None, ratio(macs, macs))
    clock = _clock_ratio(ours, base)
    use = ratio(macs, None if base.network is None else base.network.macs)
    return Price(ratio(ours.planned_macs, base.planned_macs), clock, use)


def _both_finished(one: Found, other: Found) -> bool:
    return one.group.finished and other.group.finished


def tiles(found: Sequence[Found]) -> list[Tile]:
    cost = price(found)
    shown = [(cost.training, "computation to train it"), (cost.use, "computation to use it")] if cost else []
    return [Tile(f"{times:.1f} ×", label) for times, label in shown if times is not None]


def summary(found: Sequence[Found]) -> list[str]:
    """What the best method cost, where one network is compared on one set of data."""
    cost = price(found)
    if cost is None or cost.training is None or cost.use is None:
        return []
    clock = f" ({cost.clock:.1f} times the time by the clock)" if cost.clock is not None else ""
    use = "no more" if cost.use <= 1 else f"{cost.use:.1f} times as much"
    plain = "" if reference([f.group for f in found]) else " of the plain network"
    return [f"To train it takes {cost.training:.1f} times the computation{plain}{clock}; to use it takes {use}."]


def cost(found: Sequence[Found]) -> Section:
    """Error over training MACs and over wall-clock."""
    lead = (
        "What the accuracy cost to train. Multiply-adds are counted on a real step, forward and backward, with "
        "those of teachers; the clock is that of the runs, without evaluation, its ratio that of their fastest "
        "stretches."
    )
    section = Section("cost", "Cost against accuracy", lead)
    rows, curves = [], []
    unit, length = clock_unit(found)
    for setting, same in _settings(found).items():
        base = next((f for f in same if f.group is reference([f.group for f in same])), None)
        for f in same:
            clock = Spread(tuple(v / length for v in f.seconds.values))
            rows.append(
                [
                    text(setting),
                    text(f.group.label),
                    spread(f.group.error()),
                    spread(f.group.balanced_error()),
                    _macs(f.examination.step_macs),
                    _macs(f.total_macs),
                    number(ratio(f.planned_macs, base.planned_macs if base else None), "{:.2f}"),
                    spread(clock),
                    number(_clock_ratio(f, base), "{:.2f}"),
                ]
            )
        by_macs = [_over_macs(f, look) for look, f in enumerate(same)]
        by_clock = [_over_clock(f, look, length) for look, f in enumerate(same)]
        curves += figures(f"Error over computation, {setting}", by_macs, "error %", x="training MACs")
        curves += figures(f"Error over time, {setting}", by_clock, "error %", x=f"{unit} of training")
    columns = ["method", "error %", "balanced error %", "MACs per image and step", "MACs in all", "× Baseline"]
    columns += [unit, "× Baseline by the clock"]
    section.blocks = [by_setting("Cost of training", columns, rows), *curves]
    section.missing = _missing(found, built=False)
    return section


def _clock_ratio(f: Found, base: Found | None) -> float | None:
    """Each run at its fastest, for other work slows some down; known once both have finished."""
    if base is None or not _both_finished(f, base):
        return None
    mine, other = (Spread.of(map(at_its_fastest, g.group.counted)) for g in (f, base))
    return ratio(_mean(mine), _mean(other))


def _settings(found: Sequence[Found]) -> dict[str, list[Found]]:
    return {
        setting: [f for f in found if any(f.group is g for g in same)]
        for setting, same in settings([f.group for f in found]).items()
    }


def _macs(value: float | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(brief(value), value)


def _mean(value: Spread) -> float | None:
    return value.mean if value.count else None


def _over_macs(f: Found, look: int) -> Line:
    each = f.epoch_macs
    points = thinned(list(f.group.curve(of_deployed("error")).items())) if each is not None else []
    spent = [epoch * (each or 0.0) for epoch, _ in points]
    return Line(f.group.label, spent, [s.mean for _, s in points], look=look, dash=look // COLOURS)


def _over_clock(f: Found, look: int, length: float) -> Line:
    """The mean error after each epoch over the mean time the seeds took to get there."""
    clocks = [
        dict(
            zip(
                (r["epoch"] + 1 for r in run.records),
                accumulate(seconds([record]) / length for record in run.records),
                strict=True,
            )
        )
        for run in f.group.runs
    ]
    points = []
    for epoch, error in f.group.curve(of_deployed("error")).items():
        spent = Spread.of(clock.get(epoch) for clock in clocks)
        if spent.count:
            points.append((spent.mean, error.mean))
    points = thinned(points)
    return Line(f.group.label, [x for x, _ in points], [y for _, y in points], look=look, dash=look // COLOURS)


def calibration(found: Sequence[Found]) -> Section:
    lead = (
        "How often the network is right when it says how sure it is, on the dashed line if always as often. "
        "Darker bars hold more images."
    )
    if len(found) > EXAMINED:
        lead += (
            f" Of {len(found)} recipes {EXAMINED} are looked at here and below, the Baseline and the best first."
        )
    section = Section("calibration", "Calibration", lead)
    for look, f in enumerate(found):
        if f.examination.bins:
            title = f"{f.group.label}, {f.group.setting}"
            ece = sum(abs(c - a) * n for c, a, n in f.examination.bins) / max(1, f.examination.tested)
            note = f"Expected calibration error {ece:.4f}; seed {examinee(f.group).seed}, {f.group.deployed}, "
            note += f"{f.examination.tested:,} {tested_on(f.group)}."
            section.blocks.append(Figure(title, reliability(title, f.examination.bins, look), note, note))
    section.missing = _missing(found, built=True)
    return section


def mistakes(found: Sequence[Found]) -> Section:
    lead = "The images it is most sure about and wrong, and the classes it misses most."
    section = Section("mistakes", "What it gets wrong", lead)
    for f in found:
        name = f"{f.group.label}, {f.group.setting}"
        classes, pictures = f.examination.classes, f.examination.mistakes
        if pictures:
            note = "" if tested_on(f.group) == "test images" else "Of the images the run held out."
            section.blocks.append(Gallery(f"Most confident mistakes: {name}", pictures, note))
        if classes:
            rows = [
                [
                    text(c["class"]),
                    number(c["images"]),
                    number(c["error"], "{:.2f}"),
                    text(c["taken_for"] or NOTHING),
                ]
                for c in classes[:20]
            ]
            columns = ["class", "images", "missed %", "most often taken for"]
            note = f"The 20 of {len(classes)} classes that are missed most." if len(classes) > 20 else ""
            section.blocks.append(Table(f"Classes: {name}", columns, rows, note))
    return section


def views(found: Sequence[Found]) -> Section:
    """The augmented views of some training images, of the method that draws most of them."""
    lead = "Training images as the peers were shown them in the first epoch: each is augmented for each peer anew."
    section = Section("views", "What the peers see", lead)
    for setting, same in _settings(found).items():
        most = max(same, key=lambda f: len(f.examination.views[0]) if f.examination.views else 0)
        if most.examination.views:
            pictures = [picture for views in most.examination.views for picture in views]
            section.blocks.append(Gallery(f"{most.group.label}, {setting}", pictures))
    return section


def deployment(found: Sequence[Found]) -> Section:
    """Student and ensemble where they are used."""
    lead = "What using the network costs. The student is the plain network: peers are gone once it is trained."
    rows = []
    for f in found:
        for name, network in f.examination.networks.items():
            cells = [
                text(f.group.setting),
                text(f.group.label),
                text(f"student ({name})" if name == f.group.deployed else name),
                spread(f.group.error(name)),
                spread(f.group.balanced_error(name)),
            ]
            cells += [number(network.parameters), number(network.macs), number(network.latency_ms, "{:.2f}")]
            rows.append(cells)
    columns = ["method", "network", "error %", "balanced error %", "parameters", "MACs", "latency, ms"]
    note = "Latency: median for one image on the machine and at the time this page was written."
    section = Section("deployment", "Student and ensemble in use", lead)
    if rows:
        section.blocks.append(by_setting("Student and ensemble", columns, rows, note))
    if measured := [row for f in found for row in _measured(f)]:
        columns = ["method", "network", "parameters", "MACs", "file, bytes"]
        columns += [
            f"{runtime}, {figure}"
            for runtime in ("torch", "ONNX Runtime")
            for figure in ("ms for 1 image", "× plain", "images/s in batches of 64")
        ]
        note = "Measured in turns by `coterie evaluate RUN --costs`, on the machine where that was run."
        section.blocks.append(by_setting("Plain network, student and ensemble", columns, measured, note))
    return section


def _measured(f: Found) -> list[list[Cell]]:
    """What `deploy.measure_costs` wrote into the run, if it was asked to."""
    try:
        costs = json.loads((examinee(f.group).path / "costs.json").read_text())
        plain, rows = costs["plain"], []
        for name, row in costs.items():
            cells = [text(f.group.setting), text(f.group.label), text(name)]
            cells += [number(row[key]) for key in ("parameters", "macs", "bytes")]
            for runtime in ("torch", "onnx"):
                speed, base = row.get(runtime, {}), plain.get(runtime, {})
                latency = speed.get("latency_ms")
                cells += [
                    number(latency, "{:.2f}"),
                    number(ratio(latency, base.get("latency_ms")), "{:.2f}"),
                    number(speed.get("images_per_second")),
                ]
            rows.append(cells)
        return rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def disagreements(found: Sequence[Found]) -> list[str]:
    """Networks that err otherwise than their run recorded: other data, or other files."""
    told = []
    for f in found:
        run, error = examinee(f.group), f.examination.error
        recorded = of_deployed("error")(run.last) if run.finished else None  # else the weights may be newer
        if error is not None and recorded is not None and abs(error - recorded) > 0.1:
            told.append(f"{run.path}: its weights err on {error:.2f} % here, its record says {recorded:.2f} %")
    return told


def _missing(found: Sequence[Found], built: bool) -> list[str]:
    """Why something is not shown, of those whose networks could be built or of those whose could not."""
    some = [f.examination for f in found if (f.examination.step_macs is not None) == built]
    return list(dict.fromkeys(reason for examination in some for reason in examination.missing))
