"""Mixing: each image of a batch is combined with a partner, and so are their targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .device import to_device
from .targets import checked_targets, probabilities

_Views = list[Tensor]
STREAM = 0x4D4958
"""Tells the draws of mixing from others with the same seed and step."""


class Mix(ABC):
    """Combine each image with a partner: one permutation, one lambda and one box for a whole step.

    They are the same for all views: peers and mean teachers, which are compared with each other, see the same mix.

    Args:
        alpha: the parameter of Beta(alpha, alpha), from which lambda, the share of the image itself, is drawn.
        probability: the probability that a step mixes.
        until: the fraction of the training after which images stay as they are.
    """

    def __init__(self, alpha: float = 1.0, probability: float = 0.5, until: float = 1.0) -> None:
        if not 0 < alpha < float("inf"):
            raise InputError(f"`alpha` of {type(self).__name__} must be greater than 0, not {alpha}.")
        for name, value in (("probability", probability), ("until", until)):
            if not 0 <= value <= 1:
                raise InputError(f"`{name}` of {type(self).__name__} must be from 0 to 1, not {value}.")
        self.alpha, self.probability, self.until = alpha, probability, until

    def __call__(
        self,
        views: Sequence[Tensor] | Tensor,
        targets: Tensor,
        num_classes: int | None = None,
        progress: float = 0.0,
        seed: Sequence[int] | None = None,
        several: bool = False,
    ) -> tuple[list[Tensor], Tensor]:
        """Mix the views (B, C, H, W) of a batch and its targets, or return both as they are.

        Args:
            views: augmented batches of the same images; for one, also a tensor.
            targets: class numbers (B,) or probabilities (B, C).
            num_classes: C. If None, the largest class number of the batch tells, which waits for a GPU.
            progress: the fraction of the training that is done, for `until`.
            seed: numbers that determine the draws. If None, they come from torch's generator.
            several: images may have several labels, so that the probabilities of one need not sum to 1.
        """
        views = [views] if isinstance(views, Tensor) else list(views)
        if len({view.shape for view in views}) != 1:
            raise InputError(f"{type(self).__name__} mixes all views alike: they must have one shape.")
        if len(views[0]) < 2:
            raise InputError(f"{type(self).__name__} needs at least two images in a batch, to mix them.")
        targets = checked_targets(targets, len(views[0]), num_classes, targets.is_cpu, several)
        random = np.random.default_rng((int(torch.randint(2**62, ())),) if seed is None else (*seed, STREAM))
        # Drawn in any case and in this order: parts of a batch that are computed one by one agree.
        mixes = random.random() < self.probability and progress < self.until - 1e-9
        lam, centre = random.beta(self.alpha, self.alpha), random.random(2).tolist()
        if not mixes:
            return views, targets
        partners = to_device(torch.from_numpy(random.permutation(len(views[0]))), views[0].device)
        mixed, lam = self.mix(views, partners, lam, centre)
        if targets.dim() == 1 and num_classes is None:
            num_classes = int(targets.max()) + 1
        y = probabilities(targets, num_classes or targets.shape[-1])
        return mixed, lam * y + (1 - lam) * y[partners.to(y.device)]

    @abstractmethod
    def mix(self, views: _Views, partners: Tensor, lam: float, centre: Sequence[float]) -> tuple[_Views, float]:
        """Return the mixed views and the share of the image itself that was reached."""


class MixUp(Mix):
    """Average each image with another one: lambda x + (1 - lambda) x' (Zhang et al., ICLR 2018)."""

    def __init__(self, alpha: float = 0.4, probability: float = 0.5, until: float = 1.0) -> None:
        super().__init__(alpha, probability, until)

    def mix(self, views: _Views, partners: Tensor, lam: float, centre: Sequence[float]) -> tuple[_Views, float]:
        return [lam * view + (1 - lam) * view[partners] for view in views], lam


class CutMix(Mix):
    """Replace a box of 1 - lambda of each image's area by that of another image (Yun et al., ICCV 2019)."""

    def mix(self, views: _Views, partners: Tensor, lam: float, centre: Sequence[float]) -> tuple[_Views, float]:
        height, width = views[0].shape[-2:]
        (top, bottom), (left, right) = (
            clipped_side(size, place, lam) for size, place in zip((height, width), centre, strict=True)
        )
        mixed = []
        for view in views:
            copy = view.clone()
            copy[..., top:bottom, left:right] = view[..., top:bottom, left:right][partners]
            mixed.append(copy)
        # Of the box as it was cut, not as it was drawn: the border may have clipped it.
        return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def clipped_side(size: int, centre: float, lam: float) -> tuple[int, int]:
    """Return where a side of the box begins and ends: of sqrt(1 - lambda) of `size`, clipped at the border."""
    middle, half = int(centre * size), int(0.5 * float(np.sqrt(1 - lam)) * size)
    return max(0, middle - half), min(size, middle + half)
