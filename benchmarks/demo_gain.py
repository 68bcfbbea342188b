"""The demo's comparison on many further seeds, and on the division of the digits that its setting was chosen on.

    OMP_NUM_THREADS=1 python benchmarks/demo_gain.py -o benchmarks/results/demo_gain.json    # a quarter of an hour

The setting in `coterie/demo.py` was chosen among a dozen with seeds below 20 on the second division, in which all
1,797 digits were shuffled again before the first 600 were taken for training; that one is reported as `chosen_on`.
The demo's own division, with seeds from 100 on, is what counts. Two settings before this one (steps instead of
cosine, without and with warm-up) were given up after runs with seeds 100 to 109 there: seeds from 110 on had no
part in any choice. The two divisions have test digits in common, about two in three.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from coterie.cli.demo import DEMO_METHODS, DEMO_OPTIONS
from coterie.config.options import from_options
from coterie.data.digits import digits
from coterie.metrics.seeds import paired
from coterie.runs.directory import RunDirectory, environment
from coterie.training.loop import train_recipe


class Divided(digits):
    """The digits shuffled once more before they are divided."""

    def read(self) -> Any:
        pixels, labels, test_pixels, test_labels = super().read()
        all_pixels, all_labels = np.concatenate([pixels, test_pixels]), np.concatenate([labels, test_labels])
        order = np.random.RandomState(1).permutation(len(all_labels))
        shuffled, names = all_pixels[order], all_labels[order]
        return shuffled[:600], names[:600], shuffled[600:], names[600:]


def errors(method: str, seed: int, again: bool) -> dict[str, float]:
    """Of every predictor after the last epoch."""
    recipe = from_options(
        {**DEMO_OPTIONS, **DEMO_METHODS[method], "seed": seed, "evaluate_every": DEMO_OPTIONS["epochs"]}
    )
    if again:
        recipe.data = Divided()
    with tempfile.TemporaryDirectory() as scratch:
        train_recipe(recipe, Path(scratch) / "run", f"{method}, seed {seed}")
        last = RunDirectory(Path(scratch) / "run").metrics()[-1]
    return {name: scores["error"] for name, scores in last["predictors"].items()}


def compared(seeds: range, again: bool) -> dict[str, Any]:
    results = {name: {seed: errors(name, seed, again) for seed in seeds} for name in DEMO_METHODS}
    alone = {seed: scores["peer1"] for seed, scores in results["baseline"].items()}
    peers = {seed: scores["mean1"] for seed, scores in results["pcl"].items()}
    difference = paired(peers, alone)
    assert difference is not None
    return {
        "seeds": [seeds.start, seeds.stop - 1],
        "alone": [mean(alone.values()), stdev(alone.values())],
        "with_peers": [mean(peers.values()), stdev(peers.values())],
        "difference": difference.text(),
        "better_in": sum(peers[seed] < alone[seed] for seed in seeds),
        "errors": results,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("-o", "--out", type=Path, help="write the result here, as JSON")
    arguments = parser.parse_args()
    about = environment(seed=100)
    result = {
        "environment": {name: value for name, value in about.items() if name not in ("host", "directory", "seed")},
        "setting": DEMO_OPTIONS,
        "demo": compared(range(100, 100 + arguments.seeds), again=False),
        "chosen_on": compared(range(6), again=True),
    }
    print(json.dumps({k: {n: v for n, v in result[k].items() if n != "errors"} for k in ("demo", "chosen_on")}))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
