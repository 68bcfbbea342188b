"""The formulas of pcl.md and methods.md once more, in plain NumPy: what the methods are tested against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(z: Array, t: float = 1.0) -> Array:
    e = np.exp((z - z.max(-1, keepdims=True)) / t)
    return e / e.sum(-1, keepdims=True)


def ce(z: Array, y: NDArray[np.int64]) -> float:
    return float(np.mean([-np.log(softmax(row)[label]) for row, label in zip(z, y, strict=True)]))


def kl(teacher: Array, student: Array, t: float) -> float:
    """Return T^2 KL(softmax_T(teacher) || softmax_T(student)), summed over classes, averaged over the batch."""
    p, q = softmax(teacher, t), softmax(student, t)
    return t * t * float(np.mean(np.sum(p * np.log(p / q), axis=-1)))


def sigmoid(z: Array, t: float = 1.0) -> Array:
    p: Array = 1 / (1 + np.exp(-z / t))
    return p


def binary_losses(z: Array, y: Array, weights: Array) -> Array:
    """Return the weighted cross-entropy of a yes or no for each class, image by image."""
    losses: Array = (weights * (y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z))).sum(-1)
    return losses


def binary_kl(teacher: Array, student: Array, t: float) -> float:
    """Return T^2 KL of the Bernoulli distributions of each class, summed over classes, averaged over the batch."""
    p, no = sigmoid(teacher, t), sigmoid(-teacher, t)  # 1 - p would lose its digits
    each = p * np.log(p / sigmoid(student, t)) + no * np.log(no / sigmoid(-student, t))
    return t * t * float(np.mean(each.sum(-1)))


def ramp(epoch: float, alpha: float) -> float:
    return float(np.exp(-5 * (1 - epoch / alpha) ** 2)) if epoch < alpha else 1.0


def batch_norm(x: Array, weight: Array, bias: Array) -> Array:
    """Apply batch-norm in training mode, over all axes but the second."""
    axes = tuple(a for a in range(x.ndim) if a != 1)
    shape = [1, -1] + [1] * (x.ndim - 2)
    centred = (x - x.mean(axes).reshape(shape)) / np.sqrt(x.var(axes).reshape(shape) + 1e-5)
    return centred * weight.reshape(shape) + bias.reshape(shape)


def depthwise(x: Array, weight: Array) -> Array:
    """Apply a 3x3 convolution with one filter per channel and a border of zeros."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    out = np.zeros_like(x)
    for i in range(3):
        for j in range(3):
            out += weight[:, 0, i, j].reshape(1, -1, 1, 1) * padded[:, :, i : i + height, j : j + width]
    return out


def contrast(s: Array, y: NDArray[np.int64]) -> float:
    """Return the supervised contrastive loss of one (B, B) matrix of similarities."""
    losses = []
    for a in range(len(y)):
        others = [k for k in range(len(y)) if k != a]
        positives = [k for k in others if y[k] == y[a]]
        if positives:
            norm = np.log(sum(np.exp(s[a, k]) for k in others))
            losses.append(-np.mean([s[a, k] - norm for k in positives]))
    return float(np.mean(losses)) if losses else 0.0
