"""Is the student as fast as the plain network? Ratios of latency and throughput, measured in turns.

    python benchmarks/student_latency.py [--model resnet32] [--seconds 20]

Trains nothing: speed does not depend on the weights' values. Exits with 1 if parameters or MACs differ, or the
latency of the student is more than 3 % from the plain network's in either runtime.
"""

from __future__ import annotations

import argparse
import json
import sys

import torch

from coterie.deploy.side_by_side import side_by_side
from coterie.recipe import from_options
from coterie.run import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet32")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seconds", type=float, default=20.0, help="per network, runtime and batch size")
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = from_options({"method": "PCL", "model": given.model, "data": given.data})
    method = recipe.build()
    found = side_by_side(recipe, method, given.seconds)
    plain, failed = found["plain"], False
    ratios: dict[str, dict[str, float]] = {}
    for name in [name for name in found if name != "plain"]:
        row = {key: found[name][key] / plain[key] for key in ("parameters", "macs", "bytes")}
        for runtime in ("torch", "onnx"):
            for figure, value in found[name].get(runtime, {}).items():
                row[f"{runtime}_{figure}"] = value / plain[runtime][figure]
        ratios[name] = row
    student = ratios["student"]
    failed |= student["parameters"] != 1 or student["macs"] != 1
    failed |= any(abs(value - 1) > 0.03 for key, value in student.items() if key.endswith("latency_ms"))
    print(json.dumps({"model": given.model, "ratio_to_plain": ratios, "environment": environment(0)}, indent=2))
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
