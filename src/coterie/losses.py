"""The formulas every method is written with: pure functions of logits and epochs.

Logits are (batch, classes), or (peers, batch, classes) for all peers at once. Half precision is widened to
float32 first; everything is summed over the classes and averaged over the batch.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def widen(values: Tensor) -> Tensor:
    """Half precision as float32, anything wider as it is."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _log_softmax(logits: Tensor, temperature: float = 1.0) -> Tensor:
    return F.log_softmax(widen(logits) / temperature, dim=-1)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each peer, averaged over the batch (Eq. 2-3): (..., B, C) -> (...)."""
    log_p = _log_softmax(logits)
    index = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    return -log_p.gather(-1, index).squeeze(-1).mean(-1)


def distil(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher/T) || softmax(student/T)) (Eq. 4-5), broadcast over leading dimensions.

    The gradient reaches both sides: detach the teacher where the formula stops it.
    """
    log_p, log_q = _log_softmax(teacher, temperature), _log_softmax(student, temperature)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1).mean(-1)


def distil_others(teachers: Tensor, students: Tensor, temperature: float) -> Tensor:
    """1/(m-1) sum_j sum_{l != j} distil(teacher l, student j) (Eq. 9); 0 for a single peer.

    Both are (m, B, C); teachers may also be (m, m, B, C), where [l, j] is what teacher l says to student j.
    """
    m = len(students)
    if m == 1:
        return torch.zeros((), device=students.device)
    if teachers.dim() == 3:
        teachers = teachers.unsqueeze(1)
    pairs = distil(teachers, students.unsqueeze(0), temperature)  # (l, j)
    others = 1.0 - torch.eye(m, device=pairs.device, dtype=pairs.dtype)
    return (pairs * others).sum() / (m - 1)


def contrast(similarities: Tensor, labels: Tensor) -> Tensor:
    """Supervised contrast of (..., B, B) similarities, row = anchor: -> (...).

    Minus the mean over anchors of the mean over positives, which are the other images of the anchor's class, of
    log softmax over all other images. An anchor without a positive is left out; without any the result is 0.
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (labels[:, None] == labels) & ~itself
    lowest = torch.finfo(similarities.dtype).min  # and not -inf, whose gradient is NaN in a batch of one
    log_p = _log_softmax(similarities.masked_fill(itself, lowest)).masked_fill(~positive, 0.0)
    anchors = positive.any(1)
    per_anchor = log_p.sum(-1) / positive.sum(1).clamp(min=1)
    return -per_anchor.sum(-1) / anchors.sum().clamp(min=1)


def ramp_up(epoch: float, length: float, weight: float = 1.0) -> float:
    """w(e) = weight exp(-5 (1 - e/length)^2) up to `length` epochs, then weight (Eq. 6)."""
    if epoch >= length:
        return weight
    return weight * math.exp(-5.0 * (1.0 - epoch / length) ** 2)


def total(**weighted: Tensor) -> dict[str, Tensor]:
    """The terms of a method together with their sum, `loss` (Eq. 1)."""
    return {"loss": sum(weighted.values(), start=next(iter(weighted.values())).new_zeros(())), **weighted}
