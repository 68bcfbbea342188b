"""What the figures should come to, as data, and whether they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .steps import RECOMPUTED


@dataclass(frozen=True)
class Goal:
    """A figure's place in the result (keys, from the section on) and its limit."""

    name: str
    place: tuple[str, ...]
    limit: float
    at_least: bool = False

    def value(self, sections: Mapping[str, Any]) -> float | None:
        """The figure; None if its section was not measured."""
        found: Any = sections
        for key in self.place:
            if key not in found:
                return None
            found = found[key]
        return float(found)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def _step(row: str, limit: float) -> Goal:
    return Goal(f"{row} step / plain step", ("steps", "methods", row, "ratio"), limit)


def _share(part: str, limit: float) -> Goal:
    return Goal(f"{part}, share of a PCL step", ("parts", "step", "parts", part, "share"), limit)


GOALS = (
    Goal("PCL end to end / reference, images per second", ("reference", "training", "speed_up"), 1.7, True),
    Goal("PCL step / its convolutions alone", ("floor", "PCL", "ratio"), 1.4),
    _step("PCL", 4.1),
    *(_step(row, 1.8) for row in ("ONE", "CL", "OKDDip", "FFL")),
    *(_step(row, 3.1) for row in ("DML", "KDCL")),
    _share("averages", 0.01),
    _share("data", 0.03),
    Goal("all but forward, backward and optimiser, share of a PCL step", ("parts", "step", "other"), 0.05),
    Goal("evaluation / a no-grad forward pass", ("parts", "evaluation", "ratio"), 1.05),
    Goal("memory, PCL / reference", ("steps", "memory", "PCL", "to_reference"), 1.0),
    Goal(f"memory, {RECOMPUTED} / reference", ("steps", "memory", RECOMPUTED, "to_reference"), 0.7),
    Goal("coterie --help, seconds", ("startup", "coterie --help", "seconds"), 1.0),
)


def judged(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each goal whose figure was measured, with its value and whether it is met."""
    values = [(goal, goal.value(sections)) for goal in GOALS]
    return [
        {
            "goal": goal.name,
            "limit": goal.limit,
            "at_least": goal.at_least,
            "value": value,
            "met": goal.met(value),
        }
        for goal, value in values
        if value is not None
    ]
