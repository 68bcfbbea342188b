"""Learning-rate schedules as functions of progress, the fraction of the training that is done."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..errors import InputError, reason


class Schedule(ABC):
    """A factor on the learning rate for each progress in [0, 1)."""

    @abstractmethod
    def __call__(self, progress: float) -> float: ...


class Steps(Schedule):
    """Multiply the learning rate by `factor` at given fractions of the training (150 and 225 of 300 epochs).

    Args:
        at: the fractions at which the rate drops.
        factor: the factor of each drop.
    """

    def __init__(self, at: Sequence[float] = (0.5, 0.75), factor: float = 0.1) -> None:
        wrong = next((drop for drop in at if not 0 <= drop <= 1), None)
        if wrong is not None:
            raise InputError(
                f"`at` of Steps holds fractions of the training, from 0 to 1, not {wrong:g}: 0.5 is a drop after "
                "half of the epochs."
            )
        if not 0 <= factor < math.inf:
            raise InputError(f"`factor` of Steps is a factor of the learning rate, from 0 on, not {factor}.")
        self.at, self.factor = at, factor

    def __call__(self, progress: float) -> float:
        # A fraction such as 225/300 of an epoch count must not miss its step by rounding.
        return float(self.factor ** sum(progress >= drop - 1e-9 for drop in self.at))


class Cosine(Schedule):
    """Multiply the learning rate by half a cosine that falls from 1 to `floor`.

    Args:
        floor: the factor at the end.
    """

    def __init__(self, floor: float = 0.0) -> None:
        if not 0 <= floor < math.inf:
            raise InputError(f"`floor` of Cosine is a factor of the learning rate, from 0 on, not {floor}.")
        self.floor = floor

    def __call__(self, progress: float) -> float:
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))


def rate(schedule: Schedule, step: int, steps: int, warmup: float) -> float:
    """Return the factor of step 0, 1, ...: the schedule, with a linear warm-up over the first fraction."""
    warm = warmup * steps
    return schedule(step / steps) * min(1.0, (step + 1) / warm if warm > 0 else 1.0)


class Rates:
    """Set an optimiser's learning rates before each step, by one of our schedules or one of torch's.

    A torch scheduler is stepped once per epoch, as in its documentation, and has its own warm-up.
    """

    def __init__(
        self,
        schedule: Schedule | Callable[[Optimizer], LRScheduler],
        optimizer: Optimizer,
        epochs: int,
        per_epoch: int,
        warmup: float = 0.0,
    ) -> None:
        self.optimizer, self.steps, self.per_epoch, self.warmup = optimizer, epochs * per_epoch, per_epoch, warmup
        self.base = [group["lr"] for group in optimizer.param_groups]
        self.ours = schedule if isinstance(schedule, Schedule) else None
        try:
            self.torch = None if isinstance(schedule, Schedule) else schedule(optimizer)
        except (TypeError, ValueError) as error:
            raise InputError(f"`schedule`: {error}.") from None
        if self.ours is None and not isinstance(self.torch, LRScheduler):
            raise InputError(f"`schedule` made a {type(self.torch).__name__}, not a scheduler of torch.")
        if isinstance(self.torch, ReduceLROnPlateau):
            raise InputError("ReduceLROnPlateau would choose by the test set: take a schedule of epochs alone.")
        if self.torch is not None and warmup:
            raise InputError("`warmup` belongs to Steps and Cosine: a torch scheduler has its own (SequentialLR).")

    def progress(self, step: int) -> float:
        """Return the fraction of the training that is done before step 0, 1, ..."""
        return step / self.steps

    def set(self, step: int) -> float:
        """Set the rates of step 0, 1, ...; return that of the first group."""
        if self.ours is not None:
            factor = rate(self.ours, step, self.steps, self.warmup)
            for group, base in zip(self.optimizer.param_groups, self.base, strict=True):
                group["lr"] = base * factor
        elif self.torch is not None and step and step % self.per_epoch == 0:
            with warnings.catch_warnings():  # the optimiser of a continued run has stepped in another process
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                self._step(self.torch)
        return float(self.optimizer.param_groups[0]["lr"])

    @staticmethod
    def _step(scheduler: LRScheduler) -> None:
        try:
            scheduler.step()
        except (ValueError, ArithmeticError) as error:  # of options that torch looks at only now
            name = type(scheduler).__name__
            raise InputError(f"`schedule`: {name} fails after an epoch ({reason(error)}).") from error

    def state_dict(self) -> dict[str, Any]:
        return self.torch.state_dict() if self.torch is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.torch is not None:
            self.torch.load_state_dict(state)
