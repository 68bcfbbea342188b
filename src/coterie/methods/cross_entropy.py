"""The cross-entropy terms of a method: smoothed, weighted and reduced to a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..data.targets import TaskName
from ..errors import InputError
from .losses import reduce
from .task import Task, task_named

TINY = 1e-12


class CrossEntropy(nn.Module):
    """Cross-entropy of the peers or of the ensemble of a method: averaged over images, summed over peers.

    As in `torch.nn.CrossEntropyLoss`, a mean with class weights divides by the sum of the images' weights if
    targets are class numbers, and by the number of images if they are probabilities. With `multi_label` it is the
    sigmoid cross-entropy, summed over the classes and divided by the number of images.

    Args:
        label_smoothing: the part of each target that is spread evenly over all classes; with multi_label, over
            0 and 1 in each class.
        class_weights: a weight for each class.
        task: single_label, or multi_label for any number of labels per image.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        class_weights: Sequence[float] | Tensor | None = None,
        task: TaskName = "single_label",
    ) -> None:
        super().__init__()
        self.task: Task = task_named(task)
        if not 0 <= label_smoothing < 1:
            raise InputError(f"label_smoothing must be from 0 to below 1, not {label_smoothing}.")
        self.label_smoothing = label_smoothing
        self.class_weights: Tensor | None
        weights = None if class_weights is None else checked_weights(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self._host_weights = weights  # stays on the host, where a step reads it without waiting for a GPU
        self._mean_weight: float | None = None

    @contextmanager
    def part_of_batch(self, labels: Tensor) -> Iterator[None]:
        """Divide, while the context lasts, by the mean class weight of a whole batch, given by its labels.

        For a batch that is computed in parts, here or by several processes; otherwise each batch is whole.
        """
        if self._host_weights is not None and self.task.one_label:
            self._mean_weight = float(self._host_weights[labels].double().mean())
        try:
            yield
        finally:
            self._mean_weight = None

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Reduce the cross-entropy of logits (..., B, C) to a number."""
        if self.class_weights is not None and len(self.class_weights) != logits.shape[-1]:
            raise InputError(
                f"class_weights has {len(self.class_weights)} weights, but there are {logits.shape[-1]} classes."
            )
        values = self.task.loss(logits, targets, self.class_weights, self.label_smoothing)
        if self.class_weights is None or targets.dim() == 2 or not self.task.one_label:
            return reduce(values)
        # A batch of classes that weigh nothing has a loss of 0, not 0 / 0.
        if self._mean_weight is not None:
            return reduce(values, max(self._mean_weight, TINY) * len(targets))
        return reduce(values, self.class_weights.to(values)[targets].sum().clamp(min=TINY))


def checked_weights(weights: Sequence[float] | Tensor) -> Tensor:
    """Return class weights as a tensor, or refuse them."""
    try:
        checked = torch.as_tensor(weights, dtype=torch.float32)
    except (TypeError, ValueError):
        raise InputError("class_weights must be a list of numbers, one for each class.") from None
    if checked.dim() != 1 or not ((checked >= 0) & checked.isfinite()).all() or not checked.sum() > 0:
        raise InputError("class_weights must be a list of finite numbers that are not negative and not all 0.")
    return checked
