"""What a training step of each method costs, in steps of the plain network, beside what it should cost.

    export OMP_NUM_THREADS=1 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_MMAP_THRESHOLD_=8000000000
    python benchmarks/step_cost.py -o benchmarks/results/step_cost.json    # about five minutes
    python benchmarks/step_cost.py --quick                                 # a quarter of a minute

The two MALLOC settings let glibc keep freed memory. We suspect, but have not shown, that without them methods
that hold the activations of several networks pay for getting memory back from the system in every step.

A step is forward, backward, SGD and the averages, on a batch that is already augmented. Methods take turns in
rounds, each between two steps of Baseline; a ratio is the median over the rounds of a method's time by the mean of
its two neighbours'. The time is the processor time of this single-threaded process, which other processes disturb
least. Theory: backward costs two forwards, and only convolutions and linear layers cost anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from coterie import PeerNet, models
from coterie.costs import macs
from coterie.methods import Method, available
from coterie.run import environment

PEERS = 3
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "Baseline": ("Baseline", {}),
    "KD": ("KD", {}),
    "CL": ("CL", {}),
    "ONE": ("ONE", {}),
    "FFL": ("FFL", {}),
    "OKDDip": ("OKDDip", {}),
    "DML": ("DML", {}),
    "KDCL": ("KDCL", {}),
    "MCL": ("MCL", {}),
    "PCL": ("PCL", {}),
    "PCL w/o InAu": ("PCL", {"input_augmentation": False}),
}


def made(row: str, model: str) -> Method:
    name, options = ROWS[row]
    cls: Any = available()[name]
    make = models.factory(model, 100, 3)
    cut = make().default_cut if cls.trains == "branches" else None
    net = PeerNet(make, 1 if cls.trains == "one network" else PEERS, cut, torch.zeros(2, 3, 32, 32))
    method: Method = cls(net, **options, **({"teacher": make()} if name == "KD" else {}))
    return method.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload, no-any-return]


def theory(row: str, model: str) -> float:
    """Forward passes of a step, the backward one counted double, by those of the plain network."""
    make = models.factory(model, 100, 3)
    network = make()
    whole = macs(network, (3, 32, 32))
    branches = PeerNet(make, 2, network.default_cut, torch.zeros(2, 3, 32, 32))
    branch = (_together(branches) - whole) / whole
    shared = 1 + (PEERS - 1) * branch  # all peers on one view
    own = {"Baseline": 1.0, "KD": 1 + 1 / 3, "PCL": PEERS * (1 + 1 / 3), "PCL w/o InAu": shared * (1 + 1 / 3)}
    return own.get(row) or (shared if available()[row].trains == "branches" else PEERS)


def _together(net: PeerNet) -> int:
    """Multiply-adds of all peers on one view."""

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.net(images).logits

    return macs(Logits(), (3, 32, 32))


def step(method: Method, optimizer: torch.optim.Optimizer, batch: int) -> float:
    views = [torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last) for _ in range(method.views)]
    labels = torch.randint(100, (batch,))
    started = time.process_time()
    method(views if len(views) > 1 else views[0], labels, 80)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()
    method.after_step()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, small batches, two rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--out", type=Path, help="write the result here, as JSON")
    given = parser.parse_args()
    model, batch, rounds = ("resnet8", 32, 2) if given.quick else ("resnet32", 128, given.rounds)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    methods = {row: made(row, model) for row in ROWS}
    optimizers = {
        row: torch.optim.SGD([p for p in m.parameters() if p.requires_grad], 0.01, momentum=0.9, nesterov=True)
        for row, m in methods.items()
    }
    plain, ratios = [], {row: list[float]() for row in ROWS}
    for turn in range(rounds + 1):
        before = step(methods["Baseline"], optimizers["Baseline"], batch)
        for row, method in methods.items():
            seconds = step(method, optimizers[row], batch)
            after = step(methods["Baseline"], optimizers["Baseline"], batch)
            if turn:  # the first round warms up
                ratios[row].append(2 * seconds / (before + after))
                plain.append(after)
            before = after
    result = {}
    for row in ROWS:
        ratio = statistics.median(ratios[row])
        expected = theory(row, model)
        result[row] = {
            "ratio": round(ratio, 3),
            "theory": round(expected, 3),
            "off": round(ratio / expected - 1, 3),
            "range": [round(min(ratios[row]), 3), round(max(ratios[row]), 3)],
        }
        print(f"{row:<14} {ratio:6.2f}   theory {expected:5.2f}   {100 * (ratio / expected - 1):+5.1f} %")
    seconds = round(statistics.median(plain), 3)
    print(f"A step of Baseline: {seconds} s; {model}, batch {batch}, {PEERS} peers, {rounds} rounds.")
    if given.out:
        arguments = " ".join(["python benchmarks/step_cost.py", *sys.argv[1:]])
        allocator = {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")}
        load = round(os.getloadavg()[2], 1)  # of the last quarter of an hour, this process included
        about = {
            "command": arguments,
            "allocator": allocator,
            "load_average": load,
            "model": model,
            "batch": batch,
            "peers": PEERS,
            "rounds": rounds,
            "baseline_seconds": seconds,
        }
        given.out.write_text(json.dumps({**environment(0), **about, "methods": result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
