"""The state of a training, as a checkpoint holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import __version__
from ..config.schedule import Rates
from ..errors import Failure, InputError, reason, warn
from ..methods import Method
from .best_weights import BestWeights
from .distributed import World
from .meters import LossMeter
from .precision import Precision


@dataclass
class TrainingState:
    """Everything that changes during a training. There is no RNG state: every draw depends on seed and step alone.

    epoch: finished epochs, evaluated and logged where that was due.
    step:  finished steps, which together with `epoch` is the position in the data.
    best:  the best weights so far, where they are selected by held-out images.
    """

    method: Method
    optimizer: torch.optim.Optimizer
    rates: Rates
    precision: Precision
    meter: LossMeter
    epoch: int = 0
    step: int = 0
    best: BestWeights | None = None

    @property
    def stopped(self) -> bool:
        """Tell whether the training has ended early."""
        return self.best is not None and self.best.stopped

    def capture(self, world: World) -> dict[str, Any]:
        """Return the state as plain values and tensors; every process must call this, as each has its own sums."""
        self.meter.check()
        norms = torch.stack(torch._foreach_norm(list(self.method.parameters())))
        if not norms.isfinite().all():
            raise Failure(
                f"After step {self.step} weights are no longer finite: the last checkpoint is kept; lower the "
                "learning rate, or set `clip_norm`."
            )
        selected = {} if self.best is None else {"selected": self.best.state_dict()}
        return {
            "epoch": self.epoch,
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "precision": self.precision.state_dict(),
            "meter": world.gather(self.meter.state_dict()),
            "versions": versions(),
            **selected,
        }

    def restore(self, saved: dict[str, Any], world: World) -> None:
        """Load a captured state, also one of another number of processes."""
        if saved["versions"] != versions():
            before = ", ".join(f"{name} {version}" for name, version in saved["versions"].items())
            warn(f"this run was begun with {before}: its numbers may differ in their last digits.")
        self.epoch, self.step = saved["epoch"], saved["step"]
        try:
            # Which kernels step depends on the device of this process, not on the one that the run began on.
            groups = saved["optimizer"]["param_groups"]
            for group, stored in zip(self.optimizer.param_groups, groups, strict=False):
                if "fused" in group:
                    stored["fused"] = group["fused"]
            self.method.load_state_dict(saved["method"])
            self.optimizer.load_state_dict(saved["optimizer"])
            if self.best is not None:
                self.best.load_state_dict(saved["selected"])
            self.rates.load_state_dict(saved["rates"])
            self.precision.load_state_dict(saved["precision"])
            self.meter.load_state_dict(saved["meter"], world.rank, world.size)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"The checkpoint does not fit this code's network or optimiser ({reason(error)}): use the code "
                "that it was trained with, or train it from the start with `restart`."
            ) from error


def versions() -> dict[str, str]:
    return {"coterie": __version__, "torch": str(torch.__version__)}
