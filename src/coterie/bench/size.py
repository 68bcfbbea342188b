"""How much `coterie bench` measures: the network, the batch, and how many turns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """The paper's network and batch, or small ones for a first look.

    steps: training steps of one turn where data are measured with them.
    seconds: of one network in one runtime, for the latency of exported networks.
    """

    model: str
    batch: int
    rounds: int
    steps: int
    seconds: float
    batches: tuple[int, ...]
    widths: tuple[int, ...]
    peers: int = 3
    classes: int = 100
    shape: tuple[int, int, int] = (3, 32, 32)


FULL = Size("resnet32", 128, 9, 4, 5.0, (32, 64, 128, 256), (8, 16, 32))
QUICK = Size("resnet8", 32, 3, 3, 0.3, (16, 64), (16, 32))
