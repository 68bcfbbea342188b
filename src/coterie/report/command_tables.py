"""The tables that `coterie evaluate` and `coterie data inspect` print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console

from ..errors import printable
from ..metrics.seeds import NOTHING
from ..runs.selection import SELECTED
from .table import Cell, Table, keyed_table, number, print_table, print_text, text

SCORE_COLUMNS = [
    ("predictor", "name", "{}"),
    ("error %", "error", "{:.2f}"),
    ("balanced error %", "balanced_error", "{:.2f}"),
    ("top-5 error %", "top5_error", "{:.2f}"),
    ("NLL", "nll", "{:.3f}"),
    ("calibration error", "ece", "{:.4f}"),
    ("Brier", "brier", "{:.4f}"),
]
LABEL_SCORE_COLUMNS = [
    SCORE_COLUMNS[0],
    ("mAP %", "map", "{:.2f}"),
    ("macro F1 %", "macro_f1", "{:.2f}"),
    ("micro F1 %", "micro_f1", "{:.2f}"),
    *SCORE_COLUMNS[-3:],
]
"""Of several labels an image."""
COST_OF_USE = [("parameters", "parameters", "{:,}"), ("MACs", "macs", "{:,}")]
CLASS_COLUMNS = [
    ("class", "class", "{}"),
    ("images", "images", "{:,}"),
    ("missed %", "error", "{:.2f}"),
    ("wrong guesses %", "false", "{:.2f}"),
    ("most often taken for", "taken_for", "{}"),
]
LABEL_COLUMNS = [
    *CLASS_COLUMNS[:2],
    ("average precision %", "ap", "{:.2f}"),
    ("F1 %", "f1", "{:.2f}"),
    ("wrong labels %", "false", "{:.2f}"),
    ("threshold", "threshold", "{:.3f}"),
]
COST_COLUMNS = [
    ("parameters", "parameters", "{0:,} ({1:.2f})"),
    ("MACs", "macs", "{0:,} ({1:.2f})"),
    ("file", "KiB", "{0:,.0f} KiB"),
    ("torch, batch 1", "torch latency_ms", "{0:.2f} ms ({1:.2f})"),
    ("batch 64", "torch images_per_second", "{0:,.0f}/s ({1:.2f})"),
    ("ONNX Runtime, batch 1", "onnx latency_ms", "{0:.2f} ms ({1:.2f})"),
    ("batch 64", "onnx images_per_second", "{0:,.0f}/s ({1:.2f})"),
]
"""Columns with a value and its ratio to that of the plain network."""


ColumnSpec = tuple[str, str, str]


def score_columns(scores: Iterable[Mapping[str, Any]]) -> list[ColumnSpec]:
    """Return the columns that suit the scores of predictors."""
    return LABEL_SCORE_COLUMNS if any("map" in each for each in scores) else SCORE_COLUMNS


def class_columns(classes: Iterable[Mapping[str, Any]]) -> list[ColumnSpec]:
    """Return the columns that suit the scores of classes."""
    return LABEL_COLUMNS if any("ap" in each for each in classes) else CLASS_COLUMNS


def print_evaluation(result: dict[str, Any]) -> None:
    """Print what `evaluate_run` returns, with the parts that were asked for."""
    console, name, predictors = Console(), result["deployed"], result["predictors"]
    rows = [{**scores, "name": f"{key} (deployed)" if key == name else key} for key, scores in predictors.items()]
    title = f"{result['run']} after {result['epochs']} epochs"
    if "selected" in result:
        title += f", {SELECTED} by the error of {result['selected']}"
    note = ""
    if "map" in predictors[name]:
        fitted = "the thresholds fitted on the held-out images" if "thresholds" in predictors[name] else "0.5"
        note = f"F1 is that of labels with a probability above {fitted}."
    print_table(keyed_table(title, [*score_columns(rows), *COST_OF_USE], rows, note), console)
    for kind, value in result["diversity"].items():
        agree = 100 * result["agreement"][kind]
        print_text(f"{kind} peers: diversity {value:.4f}, agreement {agree:.2f} %", console)
    classes = [{**row, "taken_for": row.get("taken_for") or NOTHING} for row in predictors[name]["per_class"]]
    by_class = keyed_table(f"{name} (deployed), class by class", class_columns(classes), classes)
    print_table(by_class, console)
    if "calibrated" in predictors[name]:
        print_table(_calibration_table(predictors, predictors[name]["calibrated"]), console)
    if "costs" in result:
        print_table(_cost_table(result["costs"]), console)


def _calibration_table(predictors: dict[str, Any], deployed: dict[str, Any]) -> Table:
    """Show what a temperature does to each predictor."""
    rows = []
    for name, scores in predictors.items():
        fit = scores["calibrated"]
        pairs = [(fit["before"][key], fit["after"][key]) for key in ("nll", "ece", "brier")]
        cells = [Cell(f"{before:.4f}, {after:.4f}", after) for before, after in pairs]
        rows.append([text(name), number(fit["temperature"], "{:.3f}"), *cells])
    columns = ["predictor", "temperature", "NLL", "calibration error", "Brier"]
    title = f"calibrated: before, after; scored on {deployed['scored_on']}"
    return Table(title, columns, rows, f"Fit on {deployed['fit_on']}.")


def _cost_table(costs: dict[str, dict[str, Any]]) -> Table:
    """Show plain network, student and ensemble side by side."""
    rows = {
        name: {"parameters": row["parameters"], "macs": row["macs"], "KiB": row["bytes"] / 1024}
        | {f"{runtime} {key}": v for runtime in ("torch", "onnx") for key, v in row.get(runtime, {}).items()}
        for name, row in costs.items()
    }

    def cell(row: dict[str, float], key: str, form: str) -> Cell:
        value = row.get(key)  # a runtime that is not installed has no numbers
        return Cell(NOTHING) if value is None else Cell(form.format(value, value / rows["plain"][key]), value)

    return Table(
        "costs on this machine (ratios to the plain network in brackets)",
        ["network", *(heading for heading, _, _ in COST_COLUMNS)],
        [[text(name), *(cell(row, key, form) for _, key, form in COST_COLUMNS)] for name, row in rows.items()],
    )


def print_data(contents: dict[str, Any]) -> None:
    """Print what `inspect_data` returns."""
    console, counts = Console(), contents["per_class"]
    columns = [("class", "class", "{}"), *((split, f"images {split}", "{:,}") for split in counts)]
    rows: list[dict[str, Any]] = [
        {"class": name} | {f"images {split}": counts[split].get(name, 0) for split in counts}
        for name in counts["train"]
    ]
    totals = {f"images {split}": contents["images"][split] for split in counts}
    rows.append({"class": "all"} | totals)
    title = f"{contents['classes']} classes, views of {' x '.join(map(str, contents['view']))}"
    print_table(keyed_table(title, columns, rows), console)
    sizes = ", ".join(f"{kind} {width}x{height}" for kind, (width, height) in contents["sizes"].items())
    lines = [f"sizes: {sizes}", f"bad files: {len(contents['bad'])}"]
    lines += [f"  {name}: {reason}" for name, reason in contents["bad"].items()]
    duplicates = contents["duplicates"]
    between = duplicates["between_splits"]
    lines += [f"the same image in two splits: {len(between)}"]
    for names_by_split in between[:20]:
        lines += ["  " + "; ".join(f"{split}: {', '.join(names)}" for split, names in names_by_split.items())]
    if len(between) > 20:
        lines += ["  ... (all of them with --json)"]
    lines += [f"repeated within a split: {duplicates['within_a_split']}", f"contact sheet: {contents['sheet']}"]
    print_text("\n".join(map(printable, lines)), console)
