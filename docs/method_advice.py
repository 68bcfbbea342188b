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
    "Baseline": "Take it first, always: it tells what the network can do alone, and every other method is "
    "compared with it.",
    "CL": "It is cheap, but here FFL was better in the mean at the same cost, and PCL clearly better at "
    "twice the cost. Take it to compare with the paper.",
    "DML": "Take it for small networks and few images, and where peers should have different architectures. "
    "It is the simplest method whose gain was clear of chance here.",
    "FFL": "Take it when training time is short: it had the largest mean gain of the cheap methods here, "
    "though with three seeds not clear of chance.",
    "KD": "Take it when you already have a larger network that is clearly better than yours. Here the "
    "teacher was no better than its students.",
    "KDCL": "Take it first for a small network with few images. Over the eight seeds of [the study](../study.md) "
    "it is as good as PCL, and it costs less.",
    "MCL": "Take it to try contrastive learning between networks. It needs several images of a class in a "
    "batch, and a single label for each image.",
    "OKDDip": "It is cheap, but here ONE was better in the mean at the same cost, and PCL clearly better at "
    "twice the cost. Take it to compare with the paper.",
    "ONE": "Take it when training time is short and the gain must be sure: of the cheap methods it is the "
    "one whose gain was clear of chance here.",
    "PCL": "Take it for deeper networks, where it is the best method of the paper's tables; we have not "
    "trained those ourselves. For a small network KDCL is as good in [the study](../study.md), and costs less.",
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
    if method.trains == "one network" and steps == 1:
        return "A step costs one step of the plain network: it is one."
    if method.trains == "one network":
        return (
            f"A step costs {steps:.1f} steps of the plain network with a teacher of the same size, and more with a"
            " larger one. The training of the teacher comes on top."
        )
    shape = f"ResNet-32 cut at `{cut}`" if method.trains == "branches" else "whole networks of one size"
    own = " `coterie cuts MODEL` says it for your network." if method.trains == "branches" else ""
    return f"A step costs {steps:.1f} steps of the plain network, with three peers and {shape}.{own}"


def measured(name: str) -> str:
    """Say what Table 1 of results.md has on a method."""
    row = re.search(
        rf"^\| {re.escape(ROWS.get(name, name))} \|(.*)\|$", RESULTS.read_text(encoding="utf-8"), re.MULTILINE
    )
    if row is None:
        return "We have no results of it yet."
    cells = [cell.strip() for cell in row[1].split("|")]
    error, difference, time = cells[0], cells[3], cells[-1]
    setting = "On CIFAR-10 at 16x16 with 250 images a class ([Table 1](../results.md))"
    if difference == "–":
        return f"{setting}, ResNet-8 alone errs on {error} % of the test images."
    mean, half, seeds = re.findall(r"[\d.]+", difference)
    clear = "clear of chance" if "**" in difference else "not clear of chance"
    direction = "lowers" if "-" in difference else "raises"
    return (
        f"{setting} it {direction} ResNet-8's error by {mean} ± {half} points ({seeds} seeds; {clear}), for"
        f" {time} times the training time."
    )
