"""`coterie demo`: the whole story in a minute, on the digits that ship with scikit-learn."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

from ..config.options import from_options
from ..errors import InputError, printable
from ..metrics.seeds import Spread
from ..peers.cost import parameters
from ..report import page
from ..report.table import Table, number, print_table, text
from ..runs.directory import RunDirectory
from ..training.loop import train_recipe

# A few hundred images and a small ResNet: little enough that peers have something to add. An epoch is five steps:
# averages look back two epochs, about as far as the paper's; its fraction of the training would be two steps. All
# peers' losses move the trunk: without a warm-up the first steps are so long that a run of PCL now and then never
# recovers. Of steps and cosine, and three learning rates, this was the best for the network alone.
# benchmarks/demo_gain.py measures the comparison on many further seeds, and says how this was chosen.
DEMO_OPTIONS: dict[str, Any] = {
    "model": "resnet8",
    "data": "digits",
    "epochs": 40,
    "evaluate_every": 2,
    "batch": 128,
    "schedule": "Cosine",
    "warmup": 0.1,
    "ema_horizon": 0.05,
}
DEMO_METHODS: dict[str, dict[str, Any]] = {
    "baseline": {"method": "Baseline", "ema": True},
    "pcl": {"method": "PCL"},
}
DEMO_ROWS = {
    "the network alone": ("baseline", "peer1"),
    "  averaged weights": ("baseline", "mean1"),
    "with peers (PCL)": ("pcl", "mean1"),
    "  raw peer": ("pcl", "peer1"),
    "  all peers (PCL-E)": ("pcl", "ensemble"),
}
"""For each row of the table: which runs, and which predictor of theirs."""


def run_demo(out: Path, seeds: int) -> None:
    """Train both, show the table, write the page and the student."""
    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, not {seeds}.")
    console, data = Console(), from_options(DEMO_OPTIONS).data
    data.load()
    console.print(
        f"Training {DEMO_OPTIONS['model']} on {data.train_size} handwritten digits, {seeds} times alone and "
        f"{seeds} times with two peers beside it.\n",
        highlight=False,
    )
    runs: dict[str, list[Path]] = {name: [] for name in DEMO_METHODS}
    sizes: dict[tuple[str, str], int] = {}
    for seed in range(seeds):
        for name, options in DEMO_METHODS.items():
            runs[name].append(out / f"{name}-{seed}")
            method = train_recipe(
                from_options({**DEMO_OPTIONS, **options, "seed": seed}), runs[name][-1], f"{name}, seed {seed}"
            )
            sizes |= {(name, p): parameters(network) for p, network in method.predictors().items()}
    shutil.copyfile(RunDirectory(runs["pcl"][0]).student, out / "student.safetensors")
    everything = [path for paths in runs.values() for path in paths]
    page.write_report(everything, out / "report.html", "Coterie demo: digits")
    print_table(_table(runs, sizes), console)
    alone, peers = (
        _errors(runs[name], predictor) for name, predictor in (("baseline", "peer1"), ("pcl", "mean1"))
    )
    gain = [a - b for a, b in zip(alone, peers, strict=True)]
    wins = sum(g > 0 for g in gain)
    console.print(
        f"\nShown: on these digits the same network, trained with peers, makes {abs(mean(gain)):.2f} points "
        f"{'fewer' if mean(gain) >= 0 else 'more'} errors (better in {wins} of {seeds} "
        "seeds), with the same parameters and cost once deployed.\n"
        f"Not shown: that it will for your data. {data.test_size:,} test digits resolve about half a point, and "
        "the training cost more; a network alone with as much computation is the fair rival on a larger task.\n",
        highlight=False,
    )
    for line in (
        f"  {out / 'report.html'}  the page with all curves",
        f"  {out / 'student.safetensors'}  the network to deploy (seed 0, not the best of them)",
        f"  {out / 'pcl-0'}  its run; try: coterie evaluate {out / 'pcl-0'}",
    ):
        console.print(printable(line), highlight=False, markup=False)


def _errors(runs: list[Path], predictor: str) -> list[float]:
    """The last epoch's error of each run."""
    return [RunDirectory(path).metrics()[-1]["predictors"][predictor]["error"] for path in runs]


def _cost(runs: list[Path]) -> float:
    return sum(record["time"]["train"] for path in runs for record in RunDirectory(path).metrics())


def _table(runs: dict[str, list[Path]], sizes: dict[tuple[str, str], int]) -> Table:
    rows = []
    for title, (name, predictor) in DEMO_ROWS.items():
        errors = Spread.of(_errors(runs[name], predictor))
        ratio = _cost(runs[name]) / _cost(runs["baseline"])
        strong = (name, predictor) == ("pcl", "mean1")
        rows.append(
            [
                text(title, strong),
                number(errors.mean, "{:.2f}", strong),
                number(errors.std, "{:.2f}", strong),
                number(sizes[name, predictor], strong=strong),
                number(ratio, "{:.1f} x", strong),
            ]
        )
    columns = ["", "error %", "± std", "parameters deployed", "training"]
    return Table("Test error after the last epoch", columns, rows)
