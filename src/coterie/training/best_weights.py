"""Keep the weights of the best evaluation of a training, and tell when to stop for lack of a better one."""

from __future__ import annotations

import io
from typing import Any

import torch

from ..methods import Method
from ..runs.directory import RunDirectory
from ..runs.selection import best_record, patience_is_over


class BestWeights:
    """All weights of a method as they were at the best evaluation so far, in the memory of the CPU.

    They are a part of the training's state, so that a checkpoint always holds those of its own records.

    Args:
        patience: stop after so many evaluations in a row without a better one; None: never.
    """

    def __init__(self, patience: int | None = None) -> None:
        self.patience = patience
        self.epochs = 0
        """Epochs after which the kept weights were the best; 0 before the first evaluation."""
        self.predictor = ""
        """The network to deploy: peer1 or mean1."""
        self.weights: dict[str, Any] = {}
        self.stopped = False

    def update(self, run: RunDirectory, method: Method) -> bool:
        """Keep the method's weights if the run's newest record is its best; return whether to stop."""
        records = run.metrics()
        best = best_record(records)
        if best["epoch"] == records[-1]["epoch"]:
            self.epochs, self.predictor = best["epoch"] + 1, best["deployed"]
            file = io.BytesIO()  # a copy in which shared weights stay shared
            torch.save(method.state_dict(), file)
            file.seek(0)
            self.weights = torch.load(file, map_location="cpu", weights_only=True)
        return patience_is_over(records, self.patience)

    def load_into(self, method: Method) -> int:
        """Give the method the kept weights; return the epochs after which they were the best."""
        method.load_state_dict(self.weights)
        method.selected = self.predictor
        return self.epochs

    def state_dict(self) -> dict[str, Any]:
        kept = {"epochs": self.epochs, "predictor": self.predictor, "method": self.weights}
        return {**kept, "stopped": self.stopped}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.epochs, self.predictor = saved["epochs"], saved["predictor"]
        self.weights, self.stopped = saved["method"], saved["stopped"]
