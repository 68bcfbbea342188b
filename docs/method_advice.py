"""What a step of each method costs, what the method brought in our tables, and when to take it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch

from coterie.methods import Method
from coterie.models import networks
from coterie.peers.cuts import list_cuts

RESULTS = Path(__file__).parent / "results.md"
ROWS = {"FFL": "FFL-S"}
"""The row of Table 1, where it is not named as the method."""
WHEN = {
    "Baseline": "Always train it first: every other method is compared with it.",
    "CL": "Use it to compare with the paper. In our runs FFL was better on average at the same cost, and PCL "
    "clearly better at twice the cost.",
    "DML": "Use it for small networks and few images, or if peers should have different architectures. "
    "In [the study](../study.md) its error is that of KDCL and PCL, and its NLL is lower.",
    "FFL": "Use it if training time is limited. Of the cheap methods, it had the largest mean gain in our runs, "
    "but with three seeds the gain is not significant.",
    "KD": "Use it if you already have a larger network that is clearly better than yours. In our runs the "
    "teacher was no better than its students.",
    "KDCL": "Use it first for a small network and few images. Over the eight seeds of [the study](../study.md) "
    "it is as good as PCL, and it costs less.",
    "MCL": "Use it to try contrastive learning between networks. It needs several images of each class in a "
    "batch, and a single label per image.",
    "OKDDip": "Use it to compare with the paper. In our runs ONE was better on average at the same cost, and PCL "
    "clearly better at twice the cost.",
    "ONE": "Use it if training time is limited and images must not be mixed. In [the study](../study.md) it "
    "lowers the error at less than twice the cost of the network alone, but not together with CutMix.",
    "OwnMean": "Use it if peers cost too much: it trains one network. It leads a search that is not finished "
    "([log](../log.md)). There, with 1.5 times the epochs, its error is lower than that of PCL; with CutMix it is "
    "not clearly lower than that of CutMix alone at the same cost.",
    "PCL": "Use it for deeper networks, where it is the best method of the paper's tables; we have not "
    "trained those ourselves. For a small network, KDCL is as good in [the study](../study.md) and costs less.",
}


@cache
def branch_share() -> tuple[str, float]:
    """Give the paper's cut of ResNet-32, and the part of the network's work that each branch then does."""
    model = networks()["resnet32"](num_classes=100, in_channels=3)
    cut = next(cut for cut in list_cuts(model, torch.zeros(2, 3, 32, 32)) if cut.name == model.default_cut)
    return cut.name, cut.share


def cost(method: type[Method]) -> str:
    """Say what a step costs, by the method's own arithmetic."""
    cut, share = branch_share()
    steps = method.step_cost(3, share)
    if method.trains == "one network" and method.averages_weights():
        return f"A training step costs as much as {steps:.2f} steps of the plain network."
    if method.trains == "one network" and steps == 1:
        return "A training step is one step of the plain network."
    if method.trains == "one network":
        return (
            f"A training step costs as much as {steps:.1f} steps of the plain network with a teacher of the same"
            " size, and more with a larger teacher. The training of the teacher is not included."
        )
    shape = f"ResNet-32 cut at `{cut}`" if method.trains == "branches" else "whole networks of one size"
    own = " `coterie cuts MODEL` prints the cost for your network." if method.trains == "branches" else ""
    return f"A training step costs as much as {steps:.1f} steps of the plain network (three peers, {shape}).{own}"


def measured(name: str) -> str:
    """Say what Table 1 of results.md has on a method."""
    row = re.search(
        rf"^\| {re.escape(ROWS.get(name, name))} \|(.*)\|$", RESULTS.read_text(encoding="utf-8"), re.MULTILINE
    )
    if row is None:
        return "It has no row in [Table 1](../results.md)."
    cells = [cell.strip() for cell in row[1].split("|")]
    error, difference, time = cells[0], cells[3], cells[-1]
    setting = "On CIFAR-10 at 16x16 with 250 images per class ([Table 1](../results.md))"
    if difference == "–":
        return f"{setting}, the error of ResNet-8 alone is {error} %."
    mean, half, seeds = re.findall(r"[\d.]+", difference)
    clear = "significant" if "**" in difference else "not significant"
    direction = "lowers" if "-" in difference else "raises"
    return (
        f"{setting}, it {direction} the error of ResNet-8 by {mean} ± {half} points ({seeds} seeds; {clear} at the"
        f" 95 % level), with {time} times the training time."
    )
