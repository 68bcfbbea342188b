"""The cuts worth choosing from: where a network divides between its blocks, and how the work divides there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import InputError
from .bottlenecks import bottlenecks
from .build import trace_logits
from .cost import macs_by_layer, parameters
from .trace import Split, Trace, branch_parameters, shared_parameters


@dataclass(frozen=True)
class Cut:
    """A cut, and what is shared and what each peer has for itself."""

    name: str
    shared_parameters: int
    peer_parameters: int
    shared_macs: int
    peer_macs: int
    positions: int  # of the tensor that the cut module gives: pixels or tokens

    @property
    def share(self) -> float:
        """The part of the network's work that each peer does for itself."""
        return self.peer_macs / max(1, self.shared_macs + self.peer_macs)


def list_cuts(model: nn.Module, example: Tensor) -> list[Cut]:
    """List every cut between blocks, in the order of execution.

    A cut is listed when
    - it is a good one (`Trace.split`): something with parameters is shared, something is left to the branch;
    - what enters it is all that the branch sees of the image (`bottlenecks`): no shortcut goes around it;
    - it is a child of the network, of a `Sequential` or `ModuleList`, or of a wrapper with at least half of the
      parameters: not the inside of a block;
    - it computes something (has multiply-adds), and shares more than the one before it (`layer3`, not
      `layer3.0`, which begins at the same place).
    """
    trace = trace_logits(model, example)
    layers = macs_by_layer(model, example[:1])
    total = sum(layers.values())
    good = [s for s in trace.good_cuts() if _between_blocks(trace, s.cut) and _macs_in(layers, s.cut)]
    through = set(bottlenecks(model, example, [s.cut for s in good]))
    cuts: list[Cut] = []
    for split in good:
        if split.cut not in through:
            continue
        shared = sum(_macs_in(layers, name) for name in split.modules)
        if cuts and shared <= cuts[-1].shared_macs:
            continue
        trunk, branch = (
            sum(p.numel() for p in side(model, split)) for side in (shared_parameters, branch_parameters)
        )
        positions = _positions(trace.shapes.get(split.cut))
        cuts.append(Cut(split.cut, trunk, branch, shared, total - shared, positions))
    return cuts


def split_at(trace: Trace, cut: str, example: Tensor) -> Split:
    """Return what lies before a cut; refuse a bad one with the reason and the cuts that `coterie cuts` lists."""
    try:
        return trace.split(cut)
    except InputError as error:
        names = [listed.name for listed in list_cuts(trace.model, example)]
        names = names or [split.cut for split in trace.good_cuts()]  # none of them between blocks
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        advice = f"Good cuts: {', '.join(names[:20])}{more}." if names else "This network has no good cut."
        raise InputError(f"{error} {advice}") from None


def default_cut(model: nn.Module, example: Tensor) -> str:
    """Return the network's own `default_cut`; else its last stage.

    The last stage begins where the number of positions (pixels or tokens) last falls, as before ResNet's
    layer4, as long as the branch has between a tenth and two thirds of the network's work. Without such a place,
    as in a ViT, it is the listed cut that leaves the branch nearest to a third.
    """
    declared = getattr(model, "default_cut", None)
    if declared:
        return str(declared)
    cuts = list_cuts(model, example)
    if not cuts:
        raise InputError(
            f"{type(model).__name__} has no cut between blocks: name a module with `cut`, "
            "or train whole networks with `cut` none."
        )
    return choose(cuts).name


def choose(cuts: list[Cut]) -> Cut:
    """Choose the default among listed cuts."""
    falls = [cut for before, cut in pairwise(cuts) if 0 < cut.positions < before.positions]
    fitting = [cut for cut in falls if 0.1 <= cut.share <= 2 / 3]
    return fitting[-1] if fitting else min(cuts, key=lambda cut: abs(cut.share - 1 / 3))


def _between_blocks(trace: Trace, name: str) -> bool:
    *owners, _ = name.split(".")
    within = [trace.modules[".".join(owners[: i + 1])] for i in range(len(owners))]
    if not within or isinstance(within[-1], (nn.Sequential, nn.ModuleList)):
        return True
    half = parameters(trace.model) / 2
    return all(parameters(module) >= half for module in within)


def _macs_in(layers: dict[str, int], name: str) -> int:
    return sum(count for layer, count in layers.items() if layer == name or layer.startswith(f"{name}."))


def _positions(shape: torch.Size | None) -> int:
    """Count pixels of (B, C, H, W) or (B, H, W, C), tokens of (B, N, C); 0 of anything else."""
    if shape is not None and len(shape) == 4:
        last = shape[1] == shape[2] and shape[2] != shape[3]  # of square images the equal sides tell
        return shape[1] * shape[2] if last else shape[2] * shape[3]
    return shape[1] if shape is not None and len(shape) == 3 else 0
