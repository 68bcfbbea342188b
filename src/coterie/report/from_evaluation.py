"""The sections about what evaluation.json holds: cost against accuracy, calibration, mistakes, deployment."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..metrics.seeds import NOTHING, Spread
from ..runs.reader import fastest_seconds
from .charts import COLOURS, Line, brief, reliability
from .content import Figure, Gallery, Picture, Section, Tile, by_setting
from .evaluation import SHOWN, Entry, by_settings, seconds, shown
from .from_metrics import figures, of_deployed, thinned
from .groups import best, reference, tested_on
from .table import Cell, Table, number, spread, text


def clock_unit(entries: Sequence[Entry]) -> tuple[str, float]:
    """The unit that suits the longest run, and its seconds."""
    longest = max((v for f in entries for v in f.seconds.values), default=0.0)
    return next(((name, s) for name, s in (("hours", 3600), ("minutes", 60)) if longest > 3 * s), ("seconds", 1))


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


@dataclass
class Price:
    """What a method costs in units of the Baseline, or else of the plain network; None where it is not known."""

    training: float | None
    clock: float | None
    use: float | None


def price(entries: Sequence[Entry]) -> Price | None:
    """Of the best method."""
    groups = [f.group for f in entries]
    ours, base = (next((f for f in entries if f.group is g), None) for g in (best(groups), reference(groups)))
    if ours is None or ours is base:
        return None
    macs = None if ours.network is None else ours.network.macs
    if base is None:
        return Price(ratio(ours.evaluation.step_macs, ours.evaluation.plain_macs), None, ratio(macs, macs))
    clock = _clock_ratio(ours, base)
    use = ratio(macs, None if base.network is None else base.network.macs)
    return Price(ratio(ours.planned_macs, base.planned_macs), clock, use)


def _both_finished(one: Entry, other: Entry) -> bool:
    return one.group.finished and other.group.finished


def tiles(entries: Sequence[Entry]) -> list[Tile]:
    cost = price(entries)
    shown = [(cost.training, "computation to train it"), (cost.use, "computation to use it")] if cost else []
    return [Tile(f"{times:.1f} ×", label) for times, label in shown if times is not None]


def summary(entries: Sequence[Entry]) -> list[str]:
    """What the best method cost, where one network is compared on one set of data."""
    cost = price(entries)
    if cost is None or cost.training is None or cost.use is None:
        return []
    clock = f" ({cost.clock:.1f} times the time by the clock)" if cost.clock is not None else ""
    use = "no more" if cost.use <= 1 else f"{cost.use:.1f} times as much"
    plain = "" if reference([f.group for f in entries]) else " of the plain network"
    return [f"To train it takes {cost.training:.1f} times the computation{plain}{clock}; to use it takes {use}."]


def cost(entries: Sequence[Entry]) -> Section:
    """Error over training MACs and over wall-clock."""
    lead = (
        "What the accuracy cost to train. Multiply-adds are counted on a real step, forward and backward, with "
        "those of teachers; the clock is that of the runs, without evaluation, its ratio that of their fastest "
        "stretches."
    )
    section = Section("cost", "Cost against accuracy", lead)
    rows, curves = [], []
    unit, length = clock_unit(entries)
    for setting, same in by_settings(entries).items():
        base = next((f for f in same if f.group is reference([f.group for f in same])), None)
        for f in same:
            clock = Spread(tuple(v / length for v in f.seconds.values))
            rows.append(
                [
                    text(setting),
                    text(f.group.label),
                    spread(f.group.error()),
                    spread(f.group.balanced_error()),
                    _macs(f.evaluation.step_macs),
                    _macs(f.total_macs),
                    number(ratio(f.planned_macs, base.planned_macs if base else None), "{:.2f}"),
                    spread(clock),
                    number(_clock_ratio(f, base), "{:.2f}"),
                ]
            )
        by_macs = [_over_macs(f, colour) for colour, f in enumerate(same)]
        by_clock = [_over_clock(f, colour, length) for colour, f in enumerate(same)]
        curves += figures(f"Error over computation, {setting}", by_macs, "error %", x="training MACs")
        curves += figures(f"Error over time, {setting}", by_clock, "error %", x=f"{unit} of training")
    columns = ["method", "error %", "balanced error %", "MACs per image and step", "MACs in all", "× Baseline"]
    columns += [unit, "× Baseline by the clock"]
    section.blocks = [by_setting("Cost of training", columns, rows), *curves]
    section.missing = _missing(entries)
    return section


def _clock_ratio(f: Entry, base: Entry | None) -> float | None:
    """Each run at its fastest, for other work slows some down; known once both have finished."""
    if base is None or not _both_finished(f, base):
        return None
    mine, other = (Spread.of(map(fastest_seconds, g.group.counted)) for g in (f, base))
    return ratio(_mean(mine), _mean(other))


def _macs(value: float | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(brief(value), value)


def _mean(value: Spread) -> float | None:
    return value.mean if value.count else None


def _over_macs(f: Entry, colour: int) -> Line:
    each = f.epoch_macs
    points = thinned(list(f.group.curve(of_deployed("error")).items())) if each is not None else []
    spent = [epoch * (each or 0.0) for epoch, _ in points]
    return Line(f.group.label, spent, [s.mean for _, s in points], look=colour, dash=colour // COLOURS)


def _over_clock(f: Entry, colour: int, length: float) -> Line:
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
    return Line(f.group.label, [x for x, _ in points], [y for _, y in points], look=colour, dash=colour // COLOURS)


def calibration(entries: Sequence[Entry]) -> Section:
    lead = (
        "How often the network is right when it says how sure it is, on the dashed line if always as often. "
        "Darker bars hold more images."
    )
    if len(entries) > SHOWN:
        lead += f" Of {len(entries)} recipes {SHOWN} are shown here and below, the Baseline and the best first."
    section = Section("calibration", "Calibration", lead)
    for colour, f in enumerate(shown(entries)):
        if f.evaluation.bins:
            title = f"{f.group.label}, {f.group.setting}"
            ece = sum(abs(c - a) * n for c, a, n in f.evaluation.bins) / max(1, f.evaluation.tested)
            note = f"Expected calibration error {ece:.4f}; seed {f.run.seed}, {f.group.deployed}, "
            note += f"{f.evaluation.tested:,} {tested_on(f.group)}."
            section.blocks.append(Figure(title, reliability(title, f.evaluation.bins, colour), note, note))
    return section


def mistakes(entries: Sequence[Entry]) -> Section:
    lead = "The images it is most sure about and wrong, and the classes it misses most."
    section = Section("mistakes", "What it gets wrong", lead)
    for f in shown(entries):
        name = f"{f.group.label}, {f.group.setting}"
        classes, pictures = f.evaluation.classes, f.evaluation.mistakes
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


def views(entries: Sequence[Entry]) -> Section:
    """Show the sheet of training images that the first run of each setting keeps."""
    lead = (
        "Training images, in each row as they are and in three views of the first epoch. A method takes as many "
        "views as it has a use for, from the first on; with mixing, they follow once more as mixed."
    )
    section = Section("views", "What the peers see", lead)
    for setting, same in by_settings(entries).items():
        sheets = [file for f in same if (file := f.run.path / "views.png").is_file()]
        if sheets:
            source = f"data:image/png;base64,{base64.b64encode(sheets[0].read_bytes()).decode()}"
            pictures = [Picture(source, f"Training images and their views, {setting}")]
            section.blocks.append(Gallery(setting, pictures, wide=True))
    return section


def deployment(entries: Sequence[Entry]) -> Section:
    """Student and ensemble where they are used."""
    lead = "What using the network costs. The student is the plain network: peers are gone once it is trained."
    rows = []
    for f in entries:
        for name, network in f.evaluation.networks.items():
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
    note = "Latency: median for one image, on the machine that evaluated the run."
    section = Section("deployment", "Student and ensemble in use", lead)
    if rows:
        section.blocks.append(by_setting("Student and ensemble", columns, rows, note))
    if measured := [row for f in entries for row in _measured(f)]:
        columns = ["method", "network", "parameters", "MACs", "file, bytes"]
        columns += [
            f"{runtime}, {figure}"
            for runtime in ("torch", "ONNX Runtime")
            for figure in ("ms for 1 image", "× plain", "images/s in batches of 64")
        ]
        note = "Measured in turns by `coterie evaluate RUN --costs`, on the machine where that was run."
        section.blocks.append(by_setting("Plain network, student and ensemble", columns, measured, note))
    return section


def _measured(f: Entry) -> list[list[Cell]]:
    """What `deploy.measure_costs` wrote into the run, if it was asked to."""
    try:
        costs = json.loads((f.run.path / "costs.json").read_text())
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


def disagreements(entries: Sequence[Entry]) -> list[str]:
    """Name evaluations with another error than the run's last record: one of the two files is of other weights."""
    sentences = []
    for f in entries:
        error = f.evaluation.error
        recorded = of_deployed("error")(f.run.last) if f.run.finished else None
        if error is not None and recorded is not None and abs(error - recorded) > 0.1:
            sentences.append(
                f"{f.run.path}: its evaluation.json has an error of {error:.2f} %, its record {recorded:.2f} %"
            )
    return sentences


def _missing(entries: Sequence[Entry]) -> list[str]:
    """Say which runs have no evaluation.json, and how to get it."""
    paths = [str(f.run.path) for f in entries if f.evaluation.step_macs is None]
    if not paths:
        return []
    runs = f"{paths[0]} has" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more have"
    return [
        f"{runs} no evaluation.json that can be read, so multiply-adds, calibration, mistakes and deployment are "
        "left out: a training writes it at its end, and so does `coterie evaluate RUN`."
    ]
