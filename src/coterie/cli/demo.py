"""`coterie demo`: the whole story in a minute, on the digits that ship with scikit-learn."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..config.options import from_options
from ..errors import InputError, printable
from ..experiments.job import check_seeds
from ..peers.cost import parameters
from ..report import page
from ..report.content import ReportSection
from ..report.groups import Group
from ..report.summary import clock_ratio
from ..report.table import Table, number, print_table, spread, text
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
    "alone, averaged weights": ("baseline", "mean1"),
    "with peers (PCL)": ("pcl", "mean1"),
    "PCL, raw peer": ("pcl", "peer1"),
    "PCL, all peers (PCL-E)": ("pcl", "ensemble"),
}
"""For each row of the table: which runs, and which predictor of theirs."""


def run_demo(out: Path, seeds: int) -> None:
    """Train both, show the table, write the page and the student."""
    check_seeds(seeds)
    if out.is_dir() and any(out.iterdir()) and not (out / "baseline-0").is_dir():
        raise InputError(f"{out} is not empty and holds no demo: choose another --out.")
    console, data = Console(), from_options(DEMO_OPTIONS).data
    data.load()
    times = "once" if seeds == 1 else f"{seeds} times"
    console.print(
        f"Training {DEMO_OPTIONS['model']} on {data.train_size} handwritten digits, {times} alone and "
        f"{times} with two peers beside it.\n",
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
    report = compose_demo(runs, sizes, data.test_size)
    page.save_text(out / "report.html", page.render_page(report, "Coterie demo: digits"))
    print_table(report.sections[0].tables[0], console)
    console.print()
    for sentence in report.summary:
        console.print(sentence, highlight=False, markup=False)
    console.print()
    for line in (
        f"  {out / 'report.html'}  the page with all curves",
        f"  {out / 'student.safetensors'}  the network to deploy (seed 0, not the best of them)",
        f"  {out / 'pcl-0'}  its run; try: coterie evaluate {out / 'pcl-0'}",
    ):
        console.print(printable(line), highlight=False, markup=False)


def compose_demo(runs: dict[str, list[Path]], sizes: dict[tuple[str, str], int], test_size: int) -> page.Report:
    """Return the demo's report: the page shows it, the terminal prints its first table and its summary."""
    report = page.compose([path for paths in runs.values() for path in paths])
    report.summary.append(
        f"Not shown: how peers do on your data. {test_size:,} test digits resolve about half a point, and the "
        "training cost more; a network alone with as much computation is the fair rival on a larger task."
    )
    table = _table(report.groups, sizes)
    report.sections.insert(0, ReportSection("demo", "The demo", "", [table]))
    return report


def _table(groups: Sequence[Group], sizes: dict[tuple[str, str], int]) -> Table:
    by_method = {g.method: g for g in groups}
    alone = by_method["Baseline"]
    rows = []
    for title, (name, predictor) in DEMO_ROWS.items():
        g = by_method[DEMO_METHODS[name]["method"]]
        cost = number(clock_ratio(g, alone), "{:.1f} x")
        rows.append([text(title), spread(g.error(predictor)), number(sizes[name, predictor]), cost])
    seeds = "one seed" if len(alone.counted) == 1 else "mean ± standard deviation over the seeds"
    columns = ["network", "error %", "parameters deployed", "training time"]
    return Table(f"Test error after the last epoch, {seeds}", columns, rows)
