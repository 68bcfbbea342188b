"""All that a training is at one moment, and the file it comes back from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .. import __version__
from ..config.schedule import Rates
from ..errors import Failure, InputError, reason, warn
from ..methods import Method
from .distributed import World
from .meters import LossMeter
from .precision import Precision


@dataclass
class State:
    """What changes while a run goes. No random state is among it: every draw is a function of seed and step.

    epoch: finished epochs, evaluated and logged where that was due.
    step:  finished steps, which together with `epoch` is the position in the data.
    """

    method: Method
    optimizer: torch.optim.Optimizer
    rates: Rates
    precision: Precision
    watch: LossMeter
    epoch: int = 0
    step: int = 0

    def capture(self, world: World) -> dict[str, Any]:
        """Plain values and tensors; every process must call it, as each has seen other images."""
        self.watch.check()
        norms = torch.stack(torch._foreach_norm(list(self.method.parameters())))
        if not norms.isfinite().all():
            raise Failure(
                f"After step {self.step} weights are no longer finite: the last checkpoint is kept; lower the "
                "learning rate, or set --clip-norm."
            )
        return {
            "epoch": self.epoch,
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "precision": self.precision.state_dict(),
            "watch": world.gather(self.watch.state_dict()),
            "versions": versions(),
        }

    def restore(self, saved: dict[str, Any], world: World) -> None:
        """Become what was captured, also by another number of processes."""
        if saved["versions"] != versions():
            was = ", ".join(f"{name} {version}" for name, version in saved["versions"].items())
            warn(f"this run was begun with {was}: its numbers may differ in their last digits.")
        self.epoch, self.step = saved["epoch"], saved["step"]
        try:
            self.method.load_state_dict(saved["method"])
            self.optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"The checkpoint does not fit this code's network or optimiser: {reason(error)}"
            ) from error
        self.rates.load_state_dict(saved["rates"])
        self.precision.load_state_dict(saved["precision"])
        self.watch.load_state_dict(saved["watch"], world.rank, world.size)


def versions() -> dict[str, str]:
    return {"coterie": __version__, "torch": str(torch.__version__)}
