"""The sections of tables and pictures: results, cost, calibration, mistakes, views, deployment, runs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..metrics.seeds import NOTHING, PAIRED, Spread
from .charts import brief, reliability_chart
from .command_tables import CLASS_COLUMNS
from .content import Figure, Gallery, Picture, ReportSection
from .curves import cost_figures
from .groups import Group, best, error_difference, reference, settings
from .summary import clock_ratio, ratio
from .table import Cell, Table, difference, keyed_table, number, spread, text

NOT_OF_THE_MACHINE = ("command", "seed", "date", "continued")
"""Keys of environment.json that say something of the run."""
SHOWN = 4
"""So many recipes have their calibration and mistakes shown; the Baselines and the best come first."""
Column = Callable[[Group, Group | None], Cell]
"""Makes a cell of a group and the reference of its setting."""
MISSED_COLUMNS = [column for column in CLASS_COLUMNS if column[1] != "false"]


def by_setting(title: str, columns: Sequence[str], rows: list[list[Cell]], note: str = "") -> Table:
    """Return a table whose first column names network and data; where all rows have the same, the title does."""
    shared = {row[0].text for row in rows}
    if len(shared) != 1:
        return Table(title, ["network and data", *columns], rows, note)
    return Table(f"{title}, {shared.pop()}", columns, [row[1:] for row in rows], note)


def _group_table(title: str, columns: Mapping[str, Column], groups: Sequence[Group], note: str = "") -> Table:
    """Return a table with a row for each group, setting by setting."""
    rows = []
    for setting, same in settings(groups).items():
        base = reference(same)
        rows += [[text(setting), text(g.label), *(cell(g, base) for cell in columns.values())] for g in same]
    return by_setting(title, ["method", *columns], rows, note)


def results_section(groups: Sequence[Group]) -> ReportSection:
    """Show the errors that count, with their seeds."""
    lowest = {
        setting: min((g.error().mean for g in same if g.error().count), default=math.nan)
        for setting, same in settings(groups).items()
    }

    def against(g: Group, base: Group | None) -> Cell:
        return difference(error_difference(g, base) if base is not None and g is not base else None)

    columns: dict[str, Column] = {
        "error %": lambda g, _: spread(g.error(), strong=g.error().mean == lowest[g.setting]),
        "balanced error %": lambda g, _: spread(g.final("balanced_error")),
        "against Baseline": against,
        "ensemble error %": lambda g, _: spread(g.error("ensemble")),
        "top-5 error %": lambda g, _: spread(g.final("top5_error")),
        "NLL": lambda g, _: spread(g.final("nll"), 3),
        "calibration error": lambda g, _: spread(g.final("ece"), 4),
        "seeds": lambda g, _: number(len(g.counted), "{:.0f}"),
        "epochs": lambda g, _: Cell(f"{g.epochs}{'' if g.finished else ' so far'}", g.epochs),
    }
    note = (
        "Error of the network that is deployed, after the last epoch: mean ± sample standard deviation over the "
        "seeds. Never the best epoch, never the best peer. The balanced error is the mean of the classes' errors. "
        f"{PAIRED} Without a seed in common (0) the means are compared."
    )
    tested = {g.tested_on for g in groups}
    if "held-out images" in tested:
        note += " Errors are on the images a run held out"
        note += ", for others on the test images" if len(tested) > 1 else ""
        note += "; `coterie evaluate` looks at the test images."
    return ReportSection("results", "Results", "", [_group_table("Results", columns, groups, note)])


def cost_section(groups: Sequence[Group]) -> ReportSection:
    """Show error over training MACs and over wall-clock."""
    lead = (
        "What the accuracy cost to train. Multiply-adds are counted on a real step, forward and backward, with "
        "those of teachers; the clock is that of the runs, without evaluation, its ratio that of their fastest "
        "stretches."
    )
    unit, seconds = _clock_unit(groups)

    def times_base(g: Group, base: Group | None) -> Cell:
        return number(None if base is None else ratio(g.planned_macs, base.planned_macs), "{:.2f}")

    columns: dict[str, Column] = {
        "error %": lambda g, _: spread(g.error()),
        "balanced error %": lambda g, _: spread(g.final("balanced_error")),
        "MACs per image and step": lambda g, _: _macs(g.evaluation.step_macs),
        "MACs in all": lambda g, _: _macs(g.total_macs),
        "× Baseline": times_base,
        unit: lambda g, _: spread(Spread(tuple(value / seconds for value in g.seconds.values))),
        "× Baseline by the clock": lambda g, base: number(clock_ratio(g, base), "{:.2f}"),
    }
    section = ReportSection("cost", "Cost against accuracy", lead, missing=_missing(groups))
    section.blocks.append(_group_table("Cost of training", columns, groups))
    for same in settings(groups).values():
        section.blocks += cost_figures(same, unit, seconds)
    return section


def _clock_unit(groups: Sequence[Group]) -> tuple[str, float]:
    """Return the unit that suits the longest run, and its seconds."""
    longest = max((v for g in groups for v in g.seconds.values), default=0.0)
    return next(((name, s) for name, s in (("hours", 3600), ("minutes", 60)) if longest > 3 * s), ("seconds", 1))


def _macs(value: float | None) -> Cell:
    return Cell(NOTHING) if value is None else Cell(brief(value), value)


def _missing(groups: Sequence[Group]) -> list[str]:
    """Say which runs have no evaluation.json, and how to get it."""
    paths = [str(g.evaluated.path) for g in groups if g.evaluation.step_macs is None]
    if not paths:
        return []
    runs = f"{paths[0]} has" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more have"
    return [
        f"{runs} no evaluation.json that can be read, so multiply-adds, calibration, mistakes and deployment are "
        "left out: a training writes it at its end, and so does `coterie evaluate RUN`."
    ]


def _shown(groups: Sequence[Group]) -> list[Group]:
    """Choose the recipes whose calibration and mistakes are shown."""
    first = [g for same in settings(groups).values() for g in (reference(same), best(same)) if g is not None]
    chosen = list(dict.fromkeys([*first, *groups]))[:SHOWN]
    return [g for g in groups if g in chosen]


def calibration_section(groups: Sequence[Group]) -> ReportSection:
    lead = (
        "How often the network is right when it says how sure it is, on the dashed line if always as often. "
        "Darker bars hold more images."
    )
    if len(groups) > SHOWN:
        lead += f" Of {len(groups)} recipes {SHOWN} are shown here and below, the Baseline and the best first."
    section = ReportSection("calibration", "Calibration", lead)
    for colour, g in enumerate(_shown(groups)):
        bins, tested = g.evaluation.bins, g.evaluation.tested
        if bins:
            title = f"{g.label}, {g.setting}"
            ece = sum(abs(confidence - accuracy) * n for confidence, accuracy, n in bins) / max(1, tested)
            note = f"Expected calibration error {ece:.4f}; seed {g.evaluated.seed}, {g.deployed}, "
            note += f"{tested:,} {g.tested_on}."
            section.blocks.append(Figure(title, reliability_chart(title, bins, colour), note, note))
    return section


def mistakes_section(groups: Sequence[Group]) -> ReportSection:
    lead = "The images it is most sure about and wrong, and the classes it misses most."
    section = ReportSection("mistakes", "What it gets wrong", lead)
    for g in _shown(groups):
        name = f"{g.label}, {g.setting}"
        classes, pictures = g.evaluation.classes, g.evaluation.mistakes
        if pictures:
            note = "" if g.tested_on == "test images" else "Of the images the run held out."
            section.blocks.append(Gallery(f"Most confident mistakes: {name}", pictures, note))
        if classes:
            rows = [{**row, "taken_for": row["taken_for"] or NOTHING} for row in classes[:20]]
            note = f"The 20 of {len(classes)} classes that are missed most." if len(classes) > 20 else ""
            section.blocks.append(keyed_table(f"Classes: {name}", MISSED_COLUMNS, rows, note))
    return section


def views_section(groups: Sequence[Group]) -> ReportSection:
    """Show the sheet of training images that the first run of each setting keeps."""
    lead = (
        "Training images, in each row as they are and in three views of the first epoch. A method takes as many "
        "views as it has a use for, from the first on; with mixing, they follow once more as mixed."
    )
    section = ReportSection("views", "What the peers see", lead)
    for setting, same in settings(groups).items():
        sheets = [file for g in same if (file := g.evaluated.path / "views.png").is_file()]
        if sheets:
            source = f"data:image/png;base64,{base64.b64encode(sheets[0].read_bytes()).decode()}"
            pictures = [Picture(source, f"Training images and their views, {setting}")]
            section.blocks.append(Gallery(setting, pictures, wide=True))
    return section


def deployment_section(groups: Sequence[Group]) -> ReportSection:
    """Show student and ensemble where they are used."""
    lead = "What using the network costs. The student is the plain network: peers are gone once it is trained."
    section = ReportSection("deployment", "Student and ensemble in use", lead)
    rows = [
        [
            text(g.setting),
            text(g.label),
            text(f"student ({name})" if name == g.deployed else name),
            spread(g.error(name)),
            spread(g.final("balanced_error", name)),
            number(network.parameters),
            number(network.macs),
            number(network.latency_ms, "{:.2f}"),
        ]
        for g in groups
        for name, network in g.evaluation.networks.items()
    ]
    if rows:
        columns = ["method", "network", "error %", "balanced error %", "parameters", "MACs", "latency, ms"]
        note = "Latency: median for one image, on the machine that evaluated the run."
        section.blocks.append(by_setting("Student and ensemble", columns, rows, note))
    if measured := [row for g in groups for row in _measured(g)]:
        columns = ["method", "network", "parameters", "MACs", "file, bytes"]
        for runtime in ("torch", "ONNX Runtime"):
            columns += [
                f"{runtime}, {what}" for what in ("ms for 1 image", "× plain", "images/s in batches of 64")
            ]
        note = "Measured in turns by `coterie evaluate RUN --costs`, on the machine where that was run."
        section.blocks.append(by_setting("Plain network, student and ensemble", columns, measured, note))
    return section


def _measured(g: Group) -> list[list[Cell]]:
    """Read what `deploy.latency` wrote into the run, if it was asked to."""
    try:
        costs = json.loads((g.evaluated.path / "costs.json").read_text(encoding="utf-8"))
        plain, rows = costs["plain"], []
        for name, row in costs.items():
            cells = [text(g.setting), text(g.label), text(name)]
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


def runs_section(groups: Sequence[Group]) -> ReportSection:
    """Show where every number comes from: directories, seeds, commands, machines, and what is wrong."""
    rows, machines = [], []
    for g in groups:
        for run in g.runs:
            seed = Cell(str(run.seed), run.seed if isinstance(run.seed, int) else None)
            state = "; ".join(run.problems) or "complete"
            date = str(run.environment.get("date") or NOTHING)[:16].replace("T", " ")
            command = run.environment.get("command") or NOTHING
            epochs = number(run.trained, "{:.0f}")
            rows.append([text(run.path), text(g.label), seed, epochs, text(state), text(date), text(command)])
            for environment in run.environments:
                machine = {k: v for k, v in environment.items() if k not in NOT_OF_THE_MACHINE}
                if machine and machine not in machines:
                    machines.append(machine)
    section = ReportSection("runs", "Runs, seeds, commands, environment")
    section.blocks.append(Table("Runs", ["run", "method", "seed", "epochs", "state", "date", "command"], rows))
    if machines:
        keys = list(dict.fromkeys(key for machine in machines for key in machine))
        cells = [[text(key), *(text(_value(m.get(key))) for m in machines)] for key in keys]
        heads = ["value"] if len(machines) == 1 else [f"environment {i}" for i in range(1, len(machines) + 1)]
        section.blocks.append(Table("Environment", ["what", *heads], cells))
    return section


def _value(value: Any) -> str:
    if value is None or value == []:
        return NOTHING
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
