"""What guessing would score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def guessing_error(labels: NDArray[np.int64]) -> float:
    """Return the error, in per cent, of always naming the commonest class of these labels."""
    return 100.0 * (1.0 - float(np.bincount(labels).max()) / len(labels))


def is_at_chance(error: float, labels: NDArray[np.int64]) -> bool:
    """Tell whether an error, in per cent, is within two standard deviations of what guessing gives, or above."""
    return is_like_guessing(error, guessing_error(labels), len(labels))


def is_like_guessing(error: float, guessing: float, images: int) -> bool:
    """Tell the same of an error on so many images, where always naming the commonest class errs on `guessing`."""
    chance = guessing / 100
    deviation = (chance * (1 - chance) / images) ** 0.5
    return error / 100 > chance - 2 * deviation


def random_order_error(targets: NDArray[Any]) -> tuple[float, float]:
    """Return 100 - mAP of a random order of images with these zeros and ones (N, C), and about its deviation.

    Of n images with a class among N, the expected average precision is the mean over the ranks k of
    (1 + (k - 1) (n - 1) / (N - 1)) / k.
    """
    images = len(targets)
    labelled = targets.sum(0, dtype=np.int64)
    labelled = labelled[labelled > 0]
    harmonic = (1 / np.arange(1, images + 1)).sum()
    precision = (harmonic + (labelled - 1) / max(1, images - 1) * (images - harmonic)) / images
    deviation = np.sqrt((precision * (1 - precision) / labelled).sum()) / len(labelled)
    return 100 * (1 - float(precision.mean())), 100 * float(deviation)
