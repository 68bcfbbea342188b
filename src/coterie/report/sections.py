"""The sections of tables and pictures: results, cost, calibration, mistakes, views, runs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import read_bytes
from ..metrics.seeds import NOTHING, PAIRED, Spread
from ..runs.selection import SELECTED, errors_sentence
from .charts import brief, reliability_chart
from .command_tables import class_columns
from .content import Figure, Gallery, Picture, ReportSection
from .curves import cost_figures
from .groups import (
    Group,
    best,
    error_difference,
    has_one_seed,
    reference,
    reference_name,
    settings,
    won_seeds,
)
from .score_columns import SEVERAL_LABELS, Column, balanced_column, error_heading, other_scores
from .summary import clock_ratio, ratio
from .table import Cell, Table, difference, keyed_table, number, spread, text

NOT_OF_THE_MACHINE = ("run", "command", "seed", "date", "continued")
"""Keys of environment.json that say something of the run."""
ONE_SEED = "Differences are those of one seed (1), which says nothing about chance."
SHOWN = 4
"""So many recipes have their calibration and mistakes shown; the Baselines and the best come first."""


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


def error_cell(g: Group, predictor: str | None = None) -> Cell:
    """Show the error of a predictor, the deployed one by default, and say where it is no better than guessing."""
    return spread(g.error(predictor), note="chance level" if g.is_at_chance(predictor) else "")


def results_section(groups: Sequence[Group]) -> ReportSection:
    """Show the errors that count, with their seeds."""

    def against(g: Group, base: Group | None) -> Cell:
        return difference(error_difference(g, base) if base is not None and g is not base else None)

    def won(g: Group, base: Group | None) -> Cell:
        seeds = won_seeds(g, base) if base is not None and g is not base else None
        return Cell(NOTHING) if seeds is None else Cell(f"{seeds[0]} of {seeds[1]}", seeds[0])

    heading = error_heading(groups)
    columns: dict[str, Column] = {
        heading: lambda g, _: error_cell(g),
        **balanced_column(groups),
        f"against {reference_name(groups)}": against,
        "seeds won": won,
        f"ensemble {heading}": lambda g, _: error_cell(g, "ensemble"),
        **other_scores(groups),
        "NLL": lambda g, _: spread(g.final("nll"), 3),
        "calibration error": lambda g, _: spread(g.final("ece"), 4),
        "seeds": lambda g, _: number(len(g.counted), "{:.0f}"),
        "epochs": lambda g, _: Cell(_epochs(g), g.epochs),
    }
    when, never = "after the last epoch", "Never the best epoch, never the best peer."
    if all(g.selected for g in groups):
        when = "at the evaluation with the lowest error"
        never = errors_sentence("best")
    elif any(g.selected for g in groups):
        never = f"Never the best peer, and the best epoch only where '{SELECTED}' is said."
    one = has_one_seed(groups)
    seeds = "of one seed" if one else "mean ± sample standard deviation over the seeds"
    note = (
        f"Error of the network that is deployed, {when}: {seeds}. {never} The balanced error is the mean of the "
        f"classes' errors. {ONE_SEED if one else PAIRED} Without a seed in common (0) the means are compared. "
        "Seeds won: with how many of the common seeds it errs less."
    )
    note += SEVERAL_LABELS if any(g.several_labels for g in groups) else ""
    tested = {g.tested_on for g in groups}
    if "held-out images" in tested:
        note += " Errors are on the images a run held out"
        note += ", for others on the test images" if len(tested) > 1 else ""
        note += "; `coterie evaluate` looks at the test images."
    return ReportSection("results", "Results", "", [_group_table("Results", columns, groups, note)])


def _epochs(g: Group) -> str:
    if not g.finished:
        return f"{g.epochs} so far"
    return f"best of {g.epochs}" if g.selected else str(g.epochs)


def cost_section(groups: Sequence[Group]) -> ReportSection:
    """Show error over training MACs and over wall-clock."""
    lead = (
        "What the accuracy cost to train. Multiply-adds are counted on a real step, forward and backward, with "
        "those of teachers; the clock is that of the runs, without evaluation, its ratio that of their fastest "
        "stretches."
    )
    unit, seconds = _clock_unit(groups)
    base_name = reference_name(groups)

    def times_base(g: Group, base: Group | None) -> Cell:
        return number(None if base is None else ratio(g.planned_macs, base.planned_macs), "{:.2f}")

    columns: dict[str, Column] = {
        error_heading(groups): lambda g, _: error_cell(g),
        **balanced_column(groups),
        "MACs per image and step": lambda g, _: _macs(g.evaluation.step_macs),
        "MACs in all": lambda g, _: _macs(g.total_macs),
        f"× {base_name}": times_base,
        unit: lambda g, _: spread(Spread(tuple(value / seconds for value in g.seconds.values))),
        f"× {base_name} by the clock": lambda g, base: number(clock_ratio(g, base), "{:.2f}"),
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
            count = max(1, sum(n for _, _, n in bins))  # with several labels an image, of all its classes
            ece = sum(abs(confidence - accuracy) * n for confidence, accuracy, n in bins) / count
            note = f"Expected calibration error {ece:.4f}; seed {g.evaluated.seed}, {g.deployed}, "
            note += f"{tested:,} {g.tested_on}."
            section.blocks.append(Figure("reliability", title, reliability_chart(title, bins, colour), note, note))
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
            rows = [{**row, "taken_for": row.get("taken_for") or NOTHING} for row in classes[:20]]
            note = f"The 20 of {len(classes)} classes that are missed most." if len(classes) > 20 else ""
            columns = [column for column in class_columns(rows) if column[1] != "false"]
            section.blocks.append(keyed_table(f"Classes: {name}", columns, rows, note))
    return section


def views_section(groups: Sequence[Group]) -> ReportSection:
    """Show the sheet of training images that the first run of each setting keeps."""
    lead = (
        "Training images, in each row as they are and in three views of the first epoch. A method takes as many "
        "views as it has a use for, from the first on; with mixing, they follow once more as mixed."
    )
    section = ReportSection("views", "What the peers see", lead)
    for setting, same in settings(groups).items():
        sheets = [sheet for g in same if (sheet := _picture(g.evaluated.path / "views.png"))]
        if sheets:
            source = f"data:image/png;base64,{base64.b64encode(sheets[0]).decode()}"
            pictures = [Picture(source, f"Training images and their views, {setting}")]
            section.blocks.append(Gallery(setting, pictures, wide=True))
    return section


def _picture(file: Path) -> bytes:
    """Return a PNG file; nothing where it is another, such as a link into the reader's own files, or none."""
    try:
        content = read_bytes(file)
    except (OSError, ValueError):
        return b""
    return content if content.startswith(b"\x89PNG") else b""


def runs_section(groups: Sequence[Group]) -> ReportSection:
    """Show where every number comes from: directories, seeds, commands, machines, and what is wrong."""
    rows, machines = [], []
    for g in groups:
        for run in g.runs:
            seed = Cell(str(run.seed), run.seed if isinstance(run.seed, int) else None)
            state = "; ".join([*run.problems, *filter(None, [run.outcome])]) or "complete"
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
