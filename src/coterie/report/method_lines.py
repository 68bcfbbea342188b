"""Each method of a report, explained in one line."""

from __future__ import annotations

from collections.abc import Sequence

from ..methods import available
from ..methods.base import method_summary
from ..metrics.seeds import NOTHING
from ..runs.reader import Result
from .content import ReportSection
from .groups import Group
from .table import Table, text


def methods_section(groups: Sequence[Group]) -> ReportSection:
    """Explain each method that occurs, in the first sentence of its class."""
    lines: dict[str, str] = {}
    for run in (run for g in groups for run in g.runs if run.config.get("method")):
        lines[run.method] = lines.get(run.method) or method_line(run)
    rows = [[text(name), text(line or NOTHING)] for name, line in lines.items()]
    note = (
        "" if all(lines.values()) else f"{NOTHING}: its class has no docstring, or the run is of an older version."
    )
    section = ReportSection("methods", "How the networks were trained")
    if rows:
        section.blocks.append(Table("Methods", ["method", "what it does"], rows, note))
    return section


def method_line(run: Result) -> str:
    """Return the sentence in the run's directory, or else that of Coterie's own class; import no other code."""
    recorded = run.description.get("method")
    if isinstance(recorded, str):
        return recorded
    spec = run.config.get("method")
    path = str(spec.get("class_path") if isinstance(spec, dict) else spec)
    method = available().get(run.method) if path in (run.method, f"coterie.{run.method}") else None
    return method_summary(method) if method else ""
