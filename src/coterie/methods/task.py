"""A task: what targets mean, and so which losses, divergences and probabilities a method is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.targets import TaskName, checked_targets, probabilities
from ..errors import unknown
from .losses import between_peers, cross_entropy, divergence, reduce, soften, widen


class Task(ABC):
    """Compare logits (..., B, C) with targets and with each other; one value for each image, (..., B).

    Methods call these and do not know which task it is.
    """

    name: ClassVar[TaskName]
    one_label: ClassVar[bool]
    """Whether each image has exactly one label."""

    @abstractmethod
    def checked(self, targets: Tensor, batch: int, classes: int | None, values: bool = True) -> Tensor:
        """Return targets as the losses take them, or refuse them; `values` reads them as well."""

    @abstractmethod
    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Compute the cross-entropy of every image: -> (..., B)."""

    @abstractmethod
    def divergence(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """Compute the divergence from teacher to student at a temperature of every image: -> (..., B).

        Leading dimensions are broadcast. The gradient reaches both: detach the teacher where a formula stops it.
        """

    def distil_loss(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """Compute T^2 times the divergence: the mean over the images, summed over everything else."""
        return reduce(self.divergence(teacher, student, temperature), scale=temperature**2)

    def peer_divergences(self, teachers: Tensor, students: Tensor, temperature: float) -> Tensor:
        """Compute the divergence of every two peers, 0 for a peer from itself: (m, B, C) -> (m, m, B).

        Teachers may also be (m, m, B, C), where [l, j] is what teacher l says to student j.
        """
        return between_peers(self.divergence, teachers, students, temperature)

    @abstractmethod
    def min_logits(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Combine the logits (m, B, C) of several networks to those of KDCL-MinLogit, (B, C)."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each class."""

    @abstractmethod
    def decisions(self, logits: Tensor, thresholds: Tensor | None = None) -> Tensor:
        """Return what logits (..., C) decide: a class (...), or yes or no for each class (..., C).

        `thresholds` are those of each class's probability; 0.5 without.
        """


class SingleLabel(Task):
    """One label an image: softmax over the classes."""

    name = "single_label"
    one_label = True

    def checked(self, targets: Tensor, batch: int, classes: int | None, values: bool = True) -> Tensor:
        return checked_targets(targets, batch, classes, values)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        return cross_entropy(logits, targets, class_weights, label_smoothing)

    def divergence(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        return divergence(teacher, student, temperature)

    def min_logits(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute min_i (z_i - z_i[y]) of each class; of probabilities y, z_i[y] is sum_c y_c z_i[c]."""
        z = widen(logits)
        images = torch.arange(len(targets), device=z.device)
        of_target = z[:, images, targets] if targets.dim() == 1 else (z * targets.to(z)).sum(-1)
        return (z - of_target.unsqueeze(-1)).amin(0)

    def probabilities(self, logits: Tensor) -> Tensor:
        return widen(logits).softmax(-1)

    def decisions(self, logits: Tensor, thresholds: Tensor | None = None) -> Tensor:
        return logits.argmax(-1)


class MultiLabel(Task):
    """Any number of labels an image: a sigmoid, and so a Bernoulli distribution, for each class.

    Sums over the classes, as the softmax's are: a class weighs as much among 3 classes as among 300, and the
    balance of cross-entropy and distillation does not depend on their number.
    """

    name = "multi_label"
    one_label = False

    def checked(self, targets: Tensor, batch: int, classes: int | None, values: bool = True) -> Tensor:
        """Return targets (B, C) from 0 to 1; class numbers (B,) are images with one label."""
        checked = checked_targets(targets, batch, classes, values, several=True)
        return checked if checked.dim() == 2 or classes is None else probabilities(checked, classes)

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        class_weights: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """Compute -sum_c w_c [y_c log sigmoid(z_c) + (1 - y_c) log(1 - sigmoid(z_c))].

        y is the target, smoothed to (1 - s) y + s / 2; w_c is 1 without class weights.
        """
        z = widen(logits)
        y = probabilities(targets, z.shape[-1], z.dtype)
        if label_smoothing:
            y = (1 - label_smoothing) * y + label_smoothing / 2
        values = -(y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z))
        return (values if class_weights is None else values * class_weights.to(z)).sum(-1)

    def divergence(self, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        """Compute sum_c KL(Bernoulli(sigmoid(teacher_c/T)) || Bernoulli(sigmoid(student_c/T)))."""
        t, z = soften(teacher, temperature), soften(student, temperature)
        p = t.sigmoid()
        yes, no = F.logsigmoid(t) - F.logsigmoid(z), F.logsigmoid(-t) - F.logsigmoid(-z)
        return (p * yes + (1 - p) * no).sum(-1)

    def min_logits(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Compute y_c max_i z_i[c] + (1 - y_c) min_i z_i[c].

        That is KDCL-MinLogit's formula for the two answers of each class, whose logits are z/2 and -z/2.
        """
        z = widen(logits)
        y = probabilities(targets, z.shape[-1], z.dtype)
        return y * z.amax(0) + (1 - y) * z.amin(0)

    def probabilities(self, logits: Tensor) -> Tensor:
        return widen(logits).sigmoid()

    def decisions(self, logits: Tensor, thresholds: Tensor | None = None) -> Tensor:
        if thresholds is None:
            return logits > 0
        return self.probabilities(logits.double()) > thresholds.to(logits.device, torch.float64)


SINGLE_LABEL, MULTI_LABEL = SingleLabel(), MultiLabel()


def task_named(name: str) -> Task:
    """Return the task of this name."""
    tasks: dict[str, Task] = {task.name: task for task in (SINGLE_LABEL, MULTI_LABEL)}
    if name not in tasks:
        raise unknown("task", name, tasks)
    return tasks[name]
