"""The formulas of images with one label each: pure functions of logits, targets and epochs.

`Task` gives a method these, or those of images with several labels.

Logits are (batch, classes), or (peers, batch, classes) for all peers at once. Targets are class numbers (batch,)
or probabilities (batch, classes). A loss gives one value per image, (..., batch); `reduce` makes a number of
them. Half precision is widened to float32 first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.targets import probabilities
from ..errors import InputError


def widen(values: Tensor) -> Tensor:
    """Convert half precision to float32; leave anything wider as it is."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def soften(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by the temperature, in float32 at least."""
    if not 0 < temperature < math.inf:
        raise InputError(f"`temperature` must be greater than 0, not {temperature}.")
    return widen(logits) / temperature


def _log_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    return F.log_softmax(soften(logits, temperature), dim=-1)


def cross_entropy(
    logits: Tensor, targets: Tensor, class_weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Compute -sum_c w_c y_c log softmax(z)_c of every image (Eq. 2-3): (..., B, C) -> (..., B).

    y is the target, smoothed to (1 - s) y + s / C; w_c is 1 without class weights.
    """
    log_p = _log_softmax(logits)
    if targets.dim() == 1 and class_weights is None and not label_smoothing:
        index = targets.expand(logits.shape[:-1]).unsqueeze(-1)
        return -log_p.gather(-1, index).squeeze(-1)
    y, classes = probabilities(targets, logits.shape[-1], log_p.dtype), logits.shape[-1]
    if label_smoothing:
        y = (1 - label_smoothing) * y + label_smoothing / classes
    if class_weights is not None:
        y = y * class_weights.to(log_p)
    return -(y * log_p).sum(-1)


def divergence(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Compute KL(softmax(teacher/T) || softmax(student/T)) of every image (Eq. 4-5): -> (..., B).

    Leading dimensions are broadcast. The gradient reaches both sides: detach the teacher where a formula stops it.
    """
    log_p, log_q = _log_softmax(teacher, temperature), _log_softmax(student, temperature)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def distil(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Compute T^2 KL(softmax(teacher/T) || softmax(student/T)) of every image: -> (..., B)."""
    return temperature**2 * divergence(teacher, student, temperature)


def distil_loss(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Reduce `distil`: the mean over the images, summed over everything else."""
    return reduce(divergence(teacher, student, temperature), scale=temperature**2)


def peer_divergences(teachers: Tensor, students: Tensor, temperature: float) -> Tensor:
    """Compute divergence(teacher l, student j) of every two peers, 0 for l = j (the inner sum of Eq. 9).

    Both are (m, B, C); teachers may also be (m, m, B, C), where [l, j] is what teacher l says to student j. The
    result is (m, m, B).
    """
    return between_peers(divergence, teachers, students, temperature)


Divergence = Callable[[Tensor, Tensor, float], Tensor]


def between_peers(diverge: Divergence, teachers: Tensor, students: Tensor, temperature: float) -> Tensor:
    """Compute `peer_divergences` by another divergence."""
    if teachers.dim() == 3:
        teachers = teachers.unsqueeze(1)
    pairs = diverge(teachers, students.unsqueeze(0), temperature)
    return pairs * (1.0 - torch.eye(len(students), device=pairs.device, dtype=pairs.dtype)).unsqueeze(-1)


def contrast(similarities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the supervised contrast of (..., B, B) similarities, row = anchor: (..., B), and how many count.

    Of an anchor: minus the mean over its positives, which are the other images of its class, of log softmax over
    all other images. An anchor without a positive has 0 and does not count.
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels) & ~itself
    lowest = torch.finfo(similarities.dtype).min  # and not -inf, whose gradient is NaN in a batch of one
    log_p = _log_softmax(similarities.masked_fill(itself, lowest)).masked_fill(~positive, 0.0)
    values = -(log_p.sum(-1) / positive.sum(1).clamp(min=1))
    return values, positive.any(1).sum().clamp(min=1)


def reduce(values: Tensor, count: Tensor | float | None = None, scale: float = 1.0) -> Tensor:
    """Average values (..., B) over the images, multiply by `scale`, and sum over everything else.

    `count` divides in place of the number of images: the sum of their weights, or how many count.
    """
    means = values.mean(-1) if count is None else values.sum(-1) / count
    return (scale * means if scale != 1.0 else means).sum()


PAPER_RAMP_UP, PAPER_BETA = 80, 0.999
"""The paper's ramp-up in epochs, and its smoothing coefficient."""


def ramp_up(epoch: float, length: float | None = None, weight: float = 1.0) -> float:
    """Compute w(e) = weight exp(-5 (1 - e/length)^2) up to `length` epochs, then weight (Eq. 6).

    A `length` of None is the paper's. In a compiled forward pass the epoch is a tensor, and so is w(e).
    """
    length = PAPER_RAMP_UP if length is None else length
    if not 0 <= length < math.inf:
        raise InputError(f"`ramp_up` is a number of epochs, from 0 on, not {length}.")
    if isinstance(epoch, Tensor):
        return weight * torch.exp(-5.0 * (1.0 - (epoch / length).clamp(max=1.0)) ** 2) if length > 0 else weight
    if epoch >= length:
        return weight
    return weight * math.exp(-5.0 * (1.0 - epoch / length) ** 2)


def check_terms(terms: Any, forward: Callable[..., Any]) -> dict[str, Tensor]:
    """Return what a method's `forward` gave; refuse anything but terms by name, one number each, with `loss`."""
    if not isinstance(terms, dict):
        problem = f"it returned {type(terms).__name__}"
    elif "loss" not in terms:
        problem = f"it has no 'loss' among {', '.join(map(str, terms)) or 'no terms'}"
    elif wrong := next((name for name, term in terms.items() if not isinstance(term, Tensor)), None):
        problem = f"'{wrong}' is {type(terms[wrong]).__name__}"
    elif wrong := next((name for name, term in terms.items() if term.dim()), None):
        problem = f"'{wrong}' has the shape {tuple(terms[wrong].shape)}"
    else:
        return terms
    code = inspect.unwrap(forward).__code__
    raise InputError(
        f"{forward.__qualname__} ({code.co_filename}, line {code.co_firstlineno}) must return a dict of tensors "
        f"of one number each, with their sum as 'loss', but {problem}: `return total(name=...)` makes one."
    )


def total(**weighted: Tensor) -> dict[str, Tensor]:
    """Return the terms of a method together with their sum, `loss` (Eq. 1). A term is one number."""
    for name, term in weighted.items():
        if term.dim():
            raise InputError(
                f"The loss term '{name}' has the shape {tuple(term.shape)}: `reduce` makes a number of it."
            )
    return {"loss": sum(weighted.values(), start=next(iter(weighted.values())).new_zeros(())), **weighted}
