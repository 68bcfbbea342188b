"""What the figures of the benchmarks should come to, and whether they do.

python benchmarks/goals.py [RESULT.json ...]     # by default benchmarks/results/bench.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ROOT

from coterie.bench.steps import RECOMPUTED
from coterie.report.table import Cell, Table, number, print_table, text


@dataclass(frozen=True)
class Goal:
    """A figure's place in the sections of a result, and its limit."""

    name: str
    keys: tuple[str, ...]
    limit: float
    at_least: bool = False

    def value(self, sections: Mapping[str, Any]) -> float | None:
        """Return the figure; None if its section was not measured."""
        figure: Any = sections
        for key in self.keys:
            if key not in figure:
                return None
            figure = figure[key]
        return float(figure)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def _step(subject: str, limit: float) -> Goal:
    return Goal(f"{subject} step / plain step", ("steps", "methods", subject, "ratio"), limit)


def _share(part: str, limit: float) -> Goal:
    return Goal(f"{part}, share of a PCL step", ("parts", "step", "parts", part, "share"), limit)


GOALS = (
    Goal("PCL end to end / reference, images per second", ("reference", "training", "speed_up"), 1.7, True),
    Goal("PCL step / its convolutions alone", ("floor", "PCL", "ratio"), 1.4),
    _step("PCL", 4.1),
    *(_step(subject, 1.8) for subject in ("ONE", "CL", "OKDDip", "FFL")),
    *(_step(subject, 3.1) for subject in ("DML", "KDCL")),
    _share("averages", 0.01),
    _share("data", 0.03),
    Goal("all but forward, backward and optimiser, share of a PCL step", ("parts", "step", "other"), 0.05),
    Goal("evaluation / a no-grad forward pass", ("parts", "evaluation", "ratio"), 1.05),
    Goal("memory, PCL / reference", ("steps", "memory", "PCL", "to_reference"), 1.0),
    Goal(f"memory, {RECOMPUTED} / reference", ("steps", "memory", RECOMPUTED, "to_reference"), 0.7),
    Goal("coterie --help, seconds", ("startup", "coterie --help", "seconds"), 1.0),
)


def goals_table(sections: Mapping[str, Any], quick: bool = False) -> Table:
    """Return each goal whose figure was measured; a quick run is a first look and judges none."""
    rows = []
    for goal in GOALS:
        value = goal.value(sections)
        if value is not None:
            met = goal.met(value)
            verdict = Cell("") if quick else Cell("met" if met else "missed")
            limit = text(f"{'≥' if goal.at_least else '≤'} {goal.limit:g}")
            rows.append([text(goal.name), limit, number(value, "{:.3f}"), verdict])
    title = "Goals (for information: a quick run judges none)" if quick else "Goals"
    return Table(title, ["goal", "limit", "measured", ""], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, default=[ROOT / "benchmarks" / "results" / "bench.json"])
    results = [json.loads(file.read_text()) for file in parser.parse_args().results]
    sections = {name: section for result in results for name, section in result["sections"].items()}
    print_table(goals_table(sections, any(result["quick"] for result in results)))


if __name__ == "__main__":
    main()
