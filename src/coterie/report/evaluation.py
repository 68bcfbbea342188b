"""What the page shows of a run's evaluation.json: costs, calibration, classes, the most confident mistakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import load_json
from ..metrics.chance import is_like_guessing
from .content import Picture


@dataclass
class Network:
    """What a predictor costs where it is used; latency is the median for one image where it was evaluated."""

    parameters: int
    macs: int
    latency_ms: float


@dataclass
class Evaluation:
    """The content of an evaluation.json; empty where there is none that can be read."""

    step_macs: float | None = None
    plain_macs: float | None = None
    """Of a training step of its network alone, as `step_macs` is of the method's."""
    train_size: int = 0
    networks: dict[str, Network] = field(default_factory=dict)
    """By predictor."""
    plain_latency_ms: float | None = None
    """Of the plain network, measured in turns with those of `networks`; older files have none."""
    tested: int = 0
    guessing_error: float | None = None
    """In per cent, of always naming the commonest class; None where an image may have several classes."""
    error: float | None = None
    bins: list[tuple[float, float, int]] = field(default_factory=list)
    classes: list[dict[str, Any]] = field(default_factory=list)
    """As `Scores.per_class` has them, those that are missed most first."""
    mistakes: list[Picture] = field(default_factory=list)

    def is_at_chance(self, error: float) -> bool:
        """Tell whether an error on these images is no better than guessing."""
        return self.guessing_error is not None and is_like_guessing(error, self.guessing_error, self.tested)


def read_evaluation(run: Path) -> Evaluation:
    """Read a run's evaluation.json."""
    try:
        content = load_json(run / "evaluation.json")
        predictors, deployed = content["predictors"], content["predictors"][content["deployed"]]
        classes = [row for row in deployed["per_class"] if row["images"]]
        return Evaluation(
            step_macs=float(content["training_macs"]),
            plain_macs=float(content["plain_training_macs"]),
            train_size=int(content["train_images"]),
            networks={
                name: Network(int(s["parameters"]), int(s["macs"]), float(s["latency_ms"]))
                for name, s in predictors.items()
                if "latency_ms" in s
            },
            plain_latency_ms=_number(content.get("plain_latency_ms")),
            tested=int(content["images"]),
            guessing_error=_guessing_error([int(row["images"]) for row in classes], int(content["images"])),
            error=float(deployed["error"]),
            bins=[(float(confidence), float(accuracy), int(n)) for confidence, accuracy, n in deployed["bins"]],
            classes=sorted(classes, key=lambda row: -row["error"]),
            mistakes=[_picture(mistake) for mistake in content["mistakes"]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return Evaluation()


def _guessing_error(counts: list[int], images: int) -> float | None:
    return 100 * (1 - max(counts) / images) if counts and sum(counts) == images else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _picture(mistake: dict[str, Any]) -> Picture:
    sure = 100 * mistake["confidence"]
    caption = f"{mistake['label']}, taken for {mistake['guess']} ({sure:.1f} %)"
    return Picture(f"data:image/png;base64,{mistake['png']}", caption)
