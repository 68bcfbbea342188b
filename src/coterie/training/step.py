"""One optimiser step of a method: forward, backward, update, averages."""

from __future__ import annotations

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import InputError
from ..methods import Method
from ..methods.base import Views
from .precision import Precision


class Step:
    """Train a method on one batch, whole or in parts.

    Args:
        method: the method to train.
        optimizer: the optimiser of its parameters.
        precision: autocast, loss scaling and clipping.
        forward: the method wrapped for several processes; by default the method itself.
    """

    def __init__(
        self, method: Method, optimizer: Optimizer, precision: Precision, forward: nn.Module | None = None
    ) -> None:
        self.method, self.optimizer, self.precision = method, optimizer, precision
        self.forward = method if forward is None else forward

    def __call__(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        """Take a step on a whole batch and return its loss terms."""
        terms = self.backward(views, targets, epoch)
        self.update()
        return terms

    def backward(self, views: Views, targets: Tensor, epoch: float, weight: float = 1.0) -> dict[str, Tensor]:
        """Add the gradients of a batch, or of a part of it that has this weight; return its loss terms."""
        with self.precision.autocast():
            terms: dict[str, Tensor] = self.forward(views, targets, epoch)
        if not terms["loss"].requires_grad:
            raise InputError(f"The 'loss' of {type(self.method).__name__} depends on no weight that is trained.")
        self.precision.backward(terms["loss"] * weight)
        return terms

    def update(self) -> None:
        """Take the optimiser step and update the averages."""
        if self.precision.step(self.optimizer):
            self.method.after_step()
