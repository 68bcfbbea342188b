"""Count what a step would launch on a GPU, by profiling it on this CPU: operators, and kernels of torch.compile.

python benchmarks/launches.py -o benchmarks/results/launches.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from coterie.bench.subjects import EPOCH, BenchSize, build_method, random_batch
from coterie.config.fused import prefer_fused
from coterie.config.options import from_options
from coterie.files import write
from coterie.methods import Method
from coterie.runs.environment import environment
from coterie.training.precision import Precision
from coterie.training.step import Step

SUBJECTS = ("Baseline", "PCL")
GENERATED = "cpp_fused"
"""A part of the names of kernels that inductor generates for a CPU."""

# They compute nothing: another shape for the same memory, or memory that is written later.
NO_LAUNCH = {
    *(
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "as_strided",
        "alias",
        "detach",
        "detach_",
        "lift_fresh",
    ),
    *(
        "t",
        "transpose",
        "permute",
        "movedim",
        "expand",
        "expand_as",
        "select",
        "slice",
        "narrow",
        "split",
        "chunk",
    ),
    *("squeeze", "unsqueeze", "flatten", "unbind", "diagonal", "view_as", "contiguous", "to", "resize_"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "result_type", "set_", "item"),
    *("_to_copy", "is_nonzero", "resolve_conj", "resolve_neg"),
}


def operator(event: Any) -> str | None:
    return event.name.removeprefix("aten::") if event.name.startswith("aten::") else None


def launches(event: Any) -> int:
    """Count the innermost operators that compute; one over lists of tensors counts once, as GPUs have it."""
    name = operator(event)
    if GENERATED in event.name or (name is not None and name.startswith(("_foreach", "_fused"))):
        return 1
    inside = sum(launches(child) for child in event.cpu_children)
    return inside or int(name is not None and name not in NO_LAUNCH)


def count_step(method: Method, size: BenchSize) -> int:
    """Count the launches of the third step: forward, backward, optimiser as on a GPU, averages."""
    optimizer = prefer_fused(from_options({}).build_optimizer(method), torch.device("cuda"))
    step = Step(method, optimizer, Precision(torch.device("cpu")))
    views, labels = random_batch(method.views, size)
    for _ in range(2):
        step(views, labels, EPOCH)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step(views, labels, EPOCH)
    return sum(launches(event) for event in profiled.events() if event.cpu_parent is None)


def count_compiled(subject: str, size: BenchSize) -> int:
    """Count the launches of a compiled step: kernels that inductor generates, and operators beside them."""
    import torch._inductor.config as inductor

    method = build_method(subject, size)
    method.compile()
    # Generated kernels report to the profiler; every process of a pool would import torch.
    with inductor.patch({"cpp.enable_kernel_profile": True, "compile_threads": 1, "force_disable_caches": True}):
        return count_step(method, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet32")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes minutes")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    size = BenchSize(options.model, options.batch, rounds=1, steps=1)
    result: dict[str, Any] = {"model": options.model, "batch": options.batch, "peers": size.peers, "counts": {}}
    for subject in SUBJECTS:
        torch.manual_seed(0)
        counts: dict[str, Any] = {"eager": count_step(build_method(subject, size), size)}
        if not options.no_compile:
            started = time.process_time()
            counts["compiled"] = count_compiled(subject, size)
            counts["compile_seconds"] = round(time.process_time() - started)
        result["counts"][subject] = counts
        print(subject, counts, flush=True)
    machine = environment(0)
    result["environment"] = {key: machine[key] for key in ("date", "commit", "torch", "processor", "threads")}
    if options.output:
        write(options.output, json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
