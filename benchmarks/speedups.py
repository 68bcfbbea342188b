"""What each speed-up of the PCL step brings: the step with it switched off, by the step as it is.

    OMP_NUM_THREADS=1 python benchmarks/speedups.py -o benchmarks/results/speedups.json    # a quarter of an hour
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie import PCL, PeerNet
from coterie.bench.naive_pcl import naive_kl
from coterie.bench.subjects import FULL, QUICK, BenchSize, build_step, repeat_step
from coterie.bench.timing import Call, summarize_turns, time_call, time_in_turns
from coterie.methods.losses import ramp_up
from coterie.models.resnet import Residual
from coterie.peers.ema import phi
from coterie.runs.environment import environment
from coterie.training.memory import keep_freed_memory


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
        for j in range(self.net.size):
            loss = (
                loss
                + F.cross_entropy(peers.logits[j], labels)
                + w * naive_kl(teacher.detach(), peers.logits[j], self.temperature)
            )
            for i in range(self.net.size):
                if i != j:
                    loss = loss + w / (self.net.size - 1) * naive_kl(said[i], peers.logits[j], self.temperature)
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


def build_variant(
    size: BenchSize, kind: type[PCL] = PCL, in_place: bool = True, channels_last: bool = True
) -> Call:
    """A step of PCL, with something switched off."""

    def network() -> nn.Module:
        net = size.make_network()
        for part in net.modules():
            if isinstance(part, nn.ReLU):
                part.inplace = in_place
            if isinstance(part, Residual) and not in_place:
                part.__class__ = OutOfPlace
        return net

    torch.manual_seed(0)
    method = kind(PeerNet(network, size.peers, "stage3", torch.zeros(2, *size.shape))).train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    method.to(memory_format=layout)  # type: ignore[call-overload]
    return repeat_step(build_step(method), size)


def switched_off(size: BenchSize) -> dict[str, Callable[[], object]]:
    return {
        "contiguous layout": build_variant(size, channels_last=False),
        "activations out of place": build_variant(size, in_place=False),
        "terms one by one": build_variant(size, OneByOne),
        "averages in a Python loop": build_variant(size, LoopedAverage),
    }


def allocator(size: BenchSize) -> dict[str, Any]:
    """Processes with and without the setting, in turns: seconds and page faults of a step."""

    def process(setting: str) -> tuple[float, float]:
        command = [sys.executable, __file__, "--process", setting, *(["--quick"] if size is QUICK else [])]
        seconds, faults = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return seconds, faults

    pairs = [(process("default"), process("kept")) for _ in range(size.rounds)]
    times = summarize_turns(
        [default[0] for default, _ in pairs], [default[0] / kept[0] for default, kept in pairs]
    )
    faults = [statistics.median(pair[i][1] for pair in pairs) for i in (0, 1)]
    return {**times, "page_faults": faults}


def one_process(setting: str, size: BenchSize) -> None:
    import resource

    if setting == "kept":
        keep_freed_memory()
    step, measured = build_variant(size), []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        measured.append((time_call(step), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before))
    print(json.dumps([statistics.median(values) for values in zip(*measured[1:], strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, small batches, few rounds")
    parser.add_argument("-o", "--out", type=Path, help="write the result here, as JSON")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    size = QUICK if arguments.quick else FULL
    if arguments.process:
        one_process(arguments.process, size)
        return
    about = {k: v for k, v in environment(seed=0).items() if k not in ("command", "directory", "host")}
    without: dict[str, Any] = {"default allocator": allocator(size)}
    keep_freed_memory()
    without |= time_in_turns(build_variant(size), switched_off(size), size.rounds)
    result = {"model": size.model, "batch": size.batch, "environment": about, "without": without}
    print(json.dumps(without, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
