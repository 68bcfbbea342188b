"""The result of `coterie bench` as tables, for the terminal and for documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..report.content import Cell, Table, number, text

Section = dict[str, Any]


def tables(result: dict[str, Any]) -> list[Table]:
    """Every section that was measured, then the goals."""
    found = [table for name, section in result["sections"].items() for table in SECTIONS[name](section)]
    return [*found, _goals(result)] if result["goals"] else found


def _startup(section: Section) -> list[Table]:
    rows = [[text(name), _seconds(found["seconds"]), _range(found)] for name, found in section.items()]
    return [Table("Start-up", ["command", "seconds", "quartiles"], rows)]


def _steps(section: Section) -> list[Table]:
    rows = [
        [
            text(row),
            number(found["ratio"], "{:.2f}"),
            _range(found),
            number(found["theory"], "{:.2f}"),
            number(100 * (found["ratio"] / found["theory"] - 1), "{:+.0f} %"),
            _seconds(found["seconds"]),
            number(found["memory_ratio"], "{:.2f}"),
            _megabytes(found["memory"]),
        ]
        for row, found in section["methods"].items()
    ]
    columns = ["method", "step / plain step", "quartiles", "theory", "above it", "seconds", "memory / plain", "MB"]
    held = [
        [text(name), _megabytes(found["bytes"]), number(found["to_reference"], "{:.2f}")]
        for name, found in section["memory"].items()
    ]
    return [
        Table("A training step", columns, rows),
        Table("Peak memory of a PCL step", ["", "MB", "/ reference"], held),
    ]


def _floor(section: Section) -> list[Table]:
    rows = [
        [
            text(row),
            number(section[row]["ratio"], "{:.2f}"),
            _range(section[row]),
            _seconds(section[row]["seconds"]),
            _seconds(section[row]["floor_seconds"]),
        ]
        for row in ("PCL", "Baseline")
    ]
    columns = ["method", "step / its convolutions", "quartiles", "step, seconds", "convolutions, seconds"]
    kinds = [f"{kind}_{layout}" for kind in ("forward", "both") for layout in ("contiguous", "channels_last")]
    layers = [
        [
            text("x".join(map(str, layer["input"]))),
            text(f"{layer['weight'][0]}, {layer['weight'][2]}x{layer['weight'][3]} / {layer['stride'][0]}"),
            number(layer["count"]),
            *(_milliseconds(layer, kind) for kind in kinds),
        ]
        for layer in section["convolutions"]
    ]
    named = ["forward, NCHW (ms)", "NHWC", "with backward, NCHW", "NHWC"]
    return [
        Table("A step and its convolutions alone", columns, rows),
        Table("The convolutions", ["input", "filters, size / stride", "times", *named], layers),
    ]


def _milliseconds(layer: Section, kind: str) -> Cell:
    """Bold where it is the better layout."""
    passes = kind.partition("_")[0]
    best = min(layer[f"{passes}_contiguous"], layer[f"{passes}_channels_last"])
    return Cell(f"{1000 * layer[kind]:.2f}", layer[kind], strong=layer[kind] == best)


def _reference(section: Section) -> list[Table]:
    rows = [
        [
            text(name),
            number(section[key]["speed_up"], "{:.2f}"),
            _range(section[key]),
            number(section[key]["images_per_second"]),
            number(section[key]["reference_images_per_second"]),
        ]
        for name, key in (("training, data included", "training"), ("data alone", "data"))
    ]
    columns = ["", "ours / reference", "quartiles", "ours, images per second", "reference"]
    return [Table("PCL against the step as people write it today", columns, rows)]


def _parts(section: Section) -> list[Table]:
    step, evaluation, export = section["step"], section["evaluation"], section["export"]
    rows = [
        [text(name), _percent(found["share"]), _range(found, 100, " %", 2), _seconds(found["seconds"])]
        for name, found in step["parts"].items()
    ]
    rows.append([text("all but forward, backward, optimiser"), _percent(step["other"]), text(""), text("")])
    spread = f"Record and checkpoint are spread over {step['epoch_steps']} steps; their seconds are of one."
    beside = [
        [text("evaluation / a no-grad forward pass"), number(evaluation["ratio"], "{:.3f}"), _range(evaluation)],
        *(
            [text(f"latency of student / plain network, {runtime}"), number(export[runtime], "{:.3f}"), text("")]
            for runtime in ("torch", "onnx")
            if runtime in export
        ),
    ]
    return [
        Table("Parts of a PCL step", ["part", "share", "quartiles", "seconds"], rows, spread),
        Table("Beside the plain network", ["", "ratio", "quartiles"], beside),
    ]


def _growth(section: Section) -> list[Table]:
    peers = [
        [text(m), number(found["ratio"], "{:.2f}"), _range(found), number(found["theory"], "{:.2f}")]
        for m, found in section["peers"].items()
    ]
    batch = [
        [text(size), number(found["speed"], "{:.2f}"), _range(found), number(found["images_per_second"])]
        for size, found in section["batch"].items()
    ]
    width = [
        [text(wide), number(found["ratio"], "{:.2f}"), _range(found), number(found["images_per_second"])]
        for wide, found in section["width"].items()
    ]
    processes = [
        [text(count), number(found["speed"], "{:.2f}"), number(found["images_per_second"])]
        for count, found in section["processes"].items()
    ]
    return [
        Table("PCL by number of peers", ["peers", "step / plain step", "quartiles", "theory"], peers),
        Table("PCL by batch", ["batch", "speed", "quartiles", "images per second"], batch),
        Table("PCL by width", ["width", "step / plain step", "quartiles", "images per second"], width),
        Table("PCL by processes of one thread", ["processes", "speed", "images per second"], processes),
    ]


def _goals(result: dict[str, Any]) -> Table:
    """A quick run is a first look: it judges nothing."""
    rows = [
        [
            text(goal["goal"]),
            text(f"{'≥' if goal['at_least'] else '≤'} {goal['limit']:g}"),
            number(goal["value"], "{:.3f}"),
            Cell("") if result["quick"] else Cell("met" if goal["met"] else "missed", strong=not goal["met"]),
        ]
        for goal in result["goals"]
    ]
    title = "Goals (for information: a quick run judges none)" if result["quick"] else "Goals"
    return Table(title, ["goal", "limit", "measured", ""], rows)


SECTIONS: dict[str, Callable[[Section], list[Table]]] = {
    "startup": _startup,
    "steps": _steps,
    "floor": _floor,
    "reference": _reference,
    "parts": _parts,
    "growth": _growth,
}


def about(result: dict[str, Any]) -> str:
    """One line: what was measured, where, when, of which commit."""
    size, where = result["size"], result["environment"]
    what = f"{size['model']}, batch {size['batch']}, {size['peers']} peers, {size['rounds']} rounds"
    threads = "1 thread" if where["threads"] == 1 else f"{where['threads']} threads"
    gpus = ", ".join(where["gpus"])
    commit = (where["commit"] or "unknown")[:12] + ("-dirty" if str(where["commit"]).endswith("dirty") else "")
    return (
        f"{what}; {where['processor']}, {where['cores']} cores, {threads}{', ' + gpus if gpus else ''}; "
        f"torch {where['torch']}; {where['date'][:10]}, commit {commit}."
    )


def _range(found: Section, factor: float = 1.0, unit: str = "", digits: int = 2) -> Cell:
    low, high = (factor * value for value in found["quartiles"])
    return text(f"{low:.{digits}f} to {high:.{digits}f}{unit}")


def _seconds(value: float) -> Cell:
    return number(value, "{:.3g}")


def _percent(share: float) -> Cell:
    return Cell(f"{100 * share:.2f} %", share)


def _megabytes(value: float) -> Cell:
    return Cell(f"{value / 1e6:,.0f}", value)
