"""KD: knowledge distillation from a trained teacher (Hinton et al., 2015)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..data.targets import TaskName
from ..errors import InputError
from ..models.weights import load_trained
from ..peers.layout import channels_last
from ..peers.net import PeerNet
from .base import Method, Views
from .losses import total


class KD(Method):
    """A network taught by a larger network that was trained before (Hinton et al., 2015).

    L = CE(z, y) + a T^2 KL(softmax_T(z_teacher) || softmax_T(z))
    ce and distil: the two terms; there is no ramp-up.

    The teacher is frozen, in evaluation mode, and gets the same view as the student. It is needed only for
    training: it is not averaged, saved with the student or counted among the parameters.

    Our reading: a = 1 and T = 3, the common setting of the PCL paper. In the original, cross-entropy has a small
    weight and T is tuned.

    Args:
        net: the student, a PeerNet of one peer.
        teacher: the directory of a finished run, a .safetensors file, or a network.
        teacher_model: the name of the teacher's network, if the file does not contain it.
        temperature: the temperature T.
        weight: a, the weight of the distillation term.
    """

    trains = "one network"

    def __init__(
        self,
        net: PeerNet,
        teacher: str | nn.Module,
        teacher_model: str | None = None,
        temperature: float = 3.0,
        weight: float = 1.0,
    ) -> None:
        super().__init__(net)
        self.temperature, self.weight = temperature, weight
        self._teacher = _Teacher(teacher, teacher_model)

    @classmethod
    def step_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, teacher_size: float = 1.0
    ) -> float:
        return 1 + teacher_size / 3  # the teacher only goes forward

    def prepare(self) -> None:
        self._teacher.load(self.net, self.task.name)

    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        z, teacher = self.net(views).logits[0], self._teacher.load(self.net, self.task.name)
        with torch.no_grad():
            teacher_logits = teacher(views[0])
        return total(
            ce=self.cross_entropy(z, targets),
            distil=self.weight * self.task.distil_loss(teacher_logits, z, self.temperature),
        )


class _Teacher:
    """A frozen network, read when it is first needed. Not a module: what holds it does not own its weights."""

    def __init__(self, source: str | nn.Module, model: str | None) -> None:
        self.source, self.model = source, model
        self.network: nn.Module | None = None

    def load(self, student: PeerNet, task: TaskName = "single_label") -> nn.Module:
        """Return the teacher of the student's task, on its device and in its precision."""
        reference = next(student.parameters())
        if self.network is None:
            if isinstance(self.source, nn.Module):
                network = copy.deepcopy(self.source)
            else:
                network = load_trained(self.source, self.model, student.num_classes, student.input_shape, task)
            network = network.to(reference).eval().requires_grad_(False)
            channels_last(network, [network], student.input_shape)
            with torch.no_grad():
                logits = network(reference.new_zeros(2, *student.input_shape))
            if logits.shape != (2, student.num_classes):
                raise InputError(
                    f"The teacher knows {logits.shape[-1]} classes, the student {student.num_classes}."
                )
            self.network = network
        weight = next(self.network.parameters())
        if weight.device != reference.device or weight.dtype != reference.dtype:
            self.network.to(reference)
        return self.network

    def __deepcopy__(self, memo: dict[int, Any]) -> _Teacher:
        return self  # the student's average has no teacher of its own
