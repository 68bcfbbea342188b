"""What checkpoints cost: PCL with the paper's networks and batch, as a share of the training time.

    python benchmarks/checkpoint_cost.py [-o benchmarks/results/checkpoint_cost.json]

For each network: a few steps of PCL (three peers, batches of 128 images of 32x32, 100 classes) are timed, then
saves of the state, with writing, reading back and syncing. A run saves once an epoch (391 steps) and every ten
minutes. The share on this machine follows; so does the length of an epoch below which one save an epoch would
pass one per cent, where the engine begins to save less often. The last entry is a whole run of short epochs,
whose saves are counted by the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from coterie.config.options import from_options
from coterie.methods.pcl import PCL
from coterie.models import factory
from coterie.peers.net import PeerNet
from coterie.runs.checkpoints import COST, Checkpoints
from coterie.runs.directory import RunDirectory
from coterie.runs.environment import environment
from coterie.training.loop import train_recipe

STEPS_PER_EPOCH, EVERY = 391, 600.0


def paper_like(model: str, steps: int = 2, saves: int = 5) -> dict[str, Any]:
    """Seconds of a step and of a save."""
    torch.manual_seed(0)
    net = PeerNet(factory(model, 100, 3), 3, "stage3", torch.randn(2, 3, 32, 32))
    method = PCL(net).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.1, 0.9, nesterov=True)
    views, labels = [torch.randn(128, 3, 32, 32) for _ in range(3)], torch.randint(100, (128,))
    times = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        method(views, labels, 40)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        times.append(time.perf_counter() - started)
    step = statistics.median(times[1:])
    state = {"method": method.state_dict(), "optimizer": optimizer.state_dict()}
    with tempfile.TemporaryDirectory(dir=".") as directory:
        checkpoints, costs = Checkpoints(Path(directory)), []
        for _ in range(saves):
            checkpoints.save(state)
            costs.append(checkpoints.cost)
        size = checkpoints.newest.stat().st_size
    save, epoch = statistics.median(costs), STEPS_PER_EPOCH * step
    return {
        "model": model,
        "megabytes": size / 1e6,
        "seconds_per_step": step,
        "seconds_per_save": save,
        "share_of_time": save / epoch + save / EVERY,
        "shortest_epoch_saved_each_time": save / COST,
    }


def short_epochs() -> dict[str, Any]:
    """A real run on digits with the default options: epochs far shorter than a save is worth."""
    spent, original = [0.0, 0.0], RunDirectory.save

    def save(self: RunDirectory, state: dict[str, Any]) -> None:
        original(self, state)
        spent[0] += self.checkpoints.cost
        spent[1] += 1

    RunDirectory.save = save  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory(dir=".") as directory:
        started = time.perf_counter()
        train_recipe(from_options({"model": "resnet8", "epochs": 40, "data": "digits"}), Path(directory) / "run")
        total = time.perf_counter() - started
    return {"epochs": 40, "seconds": total, "saves": spent[1], "share_of_time": spent[0] / total}


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("-o", "--output", type=Path)
    output = options.parse_args().output
    result = {
        "environment": environment(seed=0),
        "paper_like": [paper_like(model) for model in ("resnet32", "resnet56")],
        "short_epochs": short_epochs(),
    }
    for private in ("host", "directory", "command"):
        del result["environment"][private]
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if output is not None:
        output.write_text(text)
