"""What guessing would score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def guessing_error(labels: NDArray[np.int64]) -> float:
    """Return the error, in per cent, of always naming the commonest class of these labels."""
    return 100.0 * (1.0 - float(np.bincount(labels).max()) / len(labels))


def is_at_chance(error: float, labels: NDArray[np.int64]) -> bool:
    """Tell whether an error, in per cent, is within two standard deviations of what guessing gives, or above."""
    chance = guessing_error(labels) / 100
    deviation = (chance * (1 - chance) / len(labels)) ** 0.5
    return error / 100 > chance - 2 * deviation
