"""Check the options that select weights by held-out images."""

from __future__ import annotations

from ..data import Data
from ..errors import InputError


def check_patience(select: str, patience: int | None) -> None:
    """Refuse a patience that cannot be counted, or that would deploy weights after the best ones."""
    if patience is None:
        return
    if patience < 1:
        raise InputError(f"`patience` must be at least 1, not {patience}.")
    if select != "best":
        raise InputError(
            "`patience` stops a training some evaluations after its best one: give `select` best as well, which "
            "deploys the best one's weights."
        )


def check_held_out(select: str, data: Data) -> None:
    """Refuse to select without held-out images: the test images are for the result alone."""
    if select == "best" and data.eval_split != "val":
        raise InputError(
            "`select` best needs held-out images, for weights are never selected on the test images: add "
            "`val_fraction` 0.1."
        )
