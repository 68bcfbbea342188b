"""Digests that tell whether a data set is the one a run began with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

SAMPLE = 64
"""Images of each split whose contents are read for a fingerprint."""


def digest(parts: Iterable[bytes]) -> str:
    """Return a SHA-256 of these parts and of where each ends."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return sha.hexdigest()


def sampled(images: int) -> list[int]:
    """Return numbers of images to look into: the same ones for the same number of images, evenly spaced."""
    return [int(image) for image in np.linspace(0, images - 1, min(images, SAMPLE)).round()]
