"""What guessing would score."""

from __future__ import annotations

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
