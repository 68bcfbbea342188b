"""What each speed-up of the PCL step brings: the step with it switched off, by the step as it is.

    OMP_NUM_THREADS=1 python benchmarks/speedups.py -o benchmarks/results/speedups.json    # about ten minutes
    OMP_NUM_THREADS=1 python benchmarks/speedups.py --quick                                # under a minute

resnet32, batches of 128, three peers; forward, backward, SGD and averages. Variants take turns with the step as
it is, and a ratio is the median over the rounds of a turn by the mean of its two neighbours. The allocator is a
process's own: it is compared between processes that take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie import PCL, PeerNet, models
from coterie.allocator import keep_freed_memory
from coterie.losses import ramp_up
from coterie.mean import phi
from coterie.models.resnet import Residual
from coterie.run import environment

M, T = 3, 3.0


class OutOfPlace(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class OneByOne(PCL):
    """The loss as it is often written: peer by peer, pair by pair."""

    def forward(self, views: Any, labels: Tensor, epoch: int) -> dict[str, Tensor]:
        peers = self.net(views)
        teacher, w = self.ensemble(peers), ramp_up(epoch, self.ramp_up)
        assert teacher is not None and self.mean_method is not None
        with torch.no_grad():
            said = self.mean_method.net(views).logits
        loss = F.cross_entropy(teacher, labels)
        for j in range(M):
            loss = loss + F.cross_entropy(peers.logits[j], labels) + w * _kl(teacher.detach(), peers.logits[j])
            for i in range(M):
                if i != j:
                    loss = loss + w / (M - 1) * _kl(said[i], peers.logits[j])
        return {"loss": loss}


class LoopedAverage(PCL):
    """The averages moved parameter by parameter."""

    @torch.no_grad()
    def after_step(self) -> None:
        assert self.mean is not None
        self.mean.step += 1
        keep, current = phi(self.mean.step, self.mean.beta), dict(self.named_parameters())
        for name, mean in self.mean.average.named_parameters():
            mean.mul_(keep).add_(current[name], alpha=1 - keep)


def _kl(teacher: Tensor, student: Tensor) -> Tensor:
    divergence = F.kl_div(F.log_softmax(student / T, 1), F.softmax(teacher / T, 1), reduction="batchmean")
    return T * T * divergence


def made(model: str, kind: type[PCL] = PCL, in_place: bool = True, channels_last: bool = True) -> PCL:
    def network() -> nn.Module:
        found = models.factory(model, 100, 3)()
        for part in found.modules():
            if isinstance(part, nn.ReLU):
                part.inplace = in_place
            if isinstance(part, Residual) and not in_place:
                part.__class__ = OutOfPlace
        return found

    torch.manual_seed(0)
    method = kind(PeerNet(network, M, "stage3", torch.zeros(2, 3, 32, 32))).train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return method.to(memory_format=layout)  # type: ignore[call-overload, no-any-return]


def stepper(method: PCL, batch: int) -> Callable[[], float]:
    trained = [p for p in method.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    views, labels = list(torch.randn(M, batch, 3, 32, 32)), torch.randint(100, (batch,))

    def step() -> float:
        started = time.perf_counter()
        method(views, labels, 80)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        return time.perf_counter() - started

    return step


def variants(model: str) -> dict[str, Callable[[], PCL]]:
    return {
        "contiguous layout": partial(made, model, channels_last=False),
        "activations out of place": partial(made, model, in_place=False),
        "terms one by one": partial(made, model, OneByOne),
        "averages in a Python loop": partial(made, model, LoopedAverage),
    }


def in_turns(model: str, batch: int, rounds: int) -> dict[str, Any]:
    keep_freed_memory()
    ours = stepper(made(model), batch)
    others = {name: stepper(make(), batch) for name, make in variants(model).items()}
    ratios, seconds = {name: list[float]() for name in others}, list[float]()
    for turn in range(rounds + 1):
        before = ours()
        for name, step in others.items():
            spent, after = step(), ours()
            if turn:  # the first round warms up
                ratios[name].append(2 * spent / (before + after))
                seconds.append(after)
            before = after
    found: dict[str, Any] = {"step_seconds": statistics.median(seconds)}
    return found | {name: summary(values) for name, values in ratios.items()}


def allocator(model: str, batch: int, rounds: int) -> dict[str, Any]:
    """Processes with and without the setting, in turns: seconds and page faults of a step."""

    def once(setting: str) -> tuple[float, float]:
        command = [sys.executable, __file__, "--process", setting, model, str(batch)]
        return tuple(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))  # type: ignore[return-value]

    pairs = [(once("default"), once("kept")) for _ in range(rounds)]
    return {
        **summary([default[0] / kept[0] for default, kept in pairs]),
        "page_faults": [statistics.median(pair[i][1] for pair in pairs) for i in (0, 1)],
    }


def one_process(setting: str, model: str, batch: str) -> None:
    import resource

    if setting == "kept":
        keep_freed_memory()
    step = stepper(made(model), int(batch))
    found = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        found.append((step(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before))
    print(json.dumps([statistics.median(values) for values in zip(*found[1:], strict=True)]))


def summary(values: list[float]) -> dict[str, Any]:
    return {"ratio": statistics.median(values), "ratios": sorted(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, small batches, one round")
    parser.add_argument("-o", "--out", type=Path, help="write the result here, as JSON")
    parser.add_argument("--process", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if given.process:
        one_process(*given.process)
        return
    model, batch, rounds = ("resnet8", 32, 2) if given.quick else ("resnet32", 128, 7)
    about = environment(seed=0)
    del about["command"]
    found = {"model": model, "batch": batch, "environment": about, **in_turns(model, batch, rounds)}
    found["default allocator"] = allocator(model, batch, 1 if given.quick else 3)
    print(json.dumps({k: v for k, v in found.items() if k != "environment"}, indent=2))
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
