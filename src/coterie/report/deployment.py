"""The section of what the student and the ensemble cost where they are used."""

from __future__ import annotations

from collections.abc import Sequence

from ..files import load_json
from .content import ReportSection
from .groups import Group
from .score_columns import balanced_column, error_heading
from .sections import by_setting, error_cell
from .summary import ratio
from .table import Cell, number, spread, text


def deployment_section(groups: Sequence[Group]) -> ReportSection:
    """Show student and ensemble where they are used."""
    lead = "What using the network costs. The student is the plain network: peers are gone once it is trained."
    section = ReportSection("deployment", "Student and ensemble in use", lead)
    balanced = list(balanced_column(groups))
    rows = [
        [
            text(g.setting),
            text(g.label),
            text(f"student ({name})" if name == g.deployed else name),
            error_cell(g, None if name == g.deployed else name),
            *(spread(g.final("balanced_error", None if name == g.deployed else name)) for _ in balanced),
            number(network.parameters),
            number(network.macs),
            number(network.latency_ms, "{:.2f}"),
            number(ratio(network.latency_ms, g.evaluation.plain_latency_ms), "{:.2f}"),
        ]
        for g in groups
        for name, network in g.evaluation.networks.items()
    ]
    if rows:
        columns = ["method", "network", error_heading(groups), *balanced, "parameters", "MACs"]
        columns += ["latency, ms", "latency, × plain"]
        note = (
            "Latency: median for one image, on the machine that evaluated the run, measured in turns with the "
            "plain network. Each run was measured at another time: compare the ratios, not the milliseconds."
        )
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
        costs = load_json(g.evaluated.path / "costs.json")
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
