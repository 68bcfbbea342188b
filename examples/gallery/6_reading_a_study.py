"""Reading a study: load its runs, pair them by seed, test each difference exactly, and draw every seed.

You learn that a run is a directory of text files, so that you can check a published result in a few lines.
"""

from pathlib import Path

import numpy as np
from scipy.stats import permutation_test, t

import coterie
from coterie.report.charts import Dot, dot_chart, dot_chart_height
from coterie.report.picture import Panel, picture

STUDY = Path(__file__).parents[2] / "results/study/cifar"
ROWS = {  # the start of its directories' names: METHOD-NETWORK-DATA-RECIPE, then -sSEED
    "alone": "Baseline-resnet8-cifar10-fe38681c",
    "alone, 4x epochs": "Baseline-resnet8-cifar10-30f73668",
    "CutMix": "Baseline-resnet8-cifar10-ecfc00c2",
    "CutMix, 4x epochs": "Baseline-resnet8-cifar10-453a1383",
    "PCL": "PCL-resnet8-cifar10-740f90b4",
    "KDCL": "KDCL-resnet8-cifar10-e05a6383",
    "PCL + CutMix": "PCL-resnet8-cifar10-edeae462",
    "KDCL + CutMix": "KDCL-resnet8-cifar10-ad6b95de",
}
PRIMARY = [  # the comparisons that were stated before the first run
    ("PCL", "alone"),
    ("PCL", "alone, 4x epochs"),
    ("KDCL", "PCL"),
    ("PCL + CutMix", "CutMix"),
    ("PCL + CutMix", "CutMix, 4x epochs"),
    ("KDCL + CutMix", "CutMix"),
]
errors: dict[str, dict[int, float]] = {}  # {row: {seed: error}}
for row, name in ROWS.items():
    runs = [coterie.load(path) for path in STUDY.glob(f"{name}-s*")]
    errors[row] = {run.config["seed"]: run.error for run in runs if run.finished}

chart = []
for row, reference in PRIMARY:
    seeds = sorted(errors[row].keys() & errors[reference].keys())
    if len(seeds) < 2:
        continue  # no spread yet
    differences = np.array([errors[row][seed] - errors[reference][seed] for seed in seeds])
    half = t.ppf(0.975, len(seeds) - 1) * differences.std(ddof=1) / np.sqrt(len(seeds))
    # If two rows were alike, each seed's difference might as well have the other sign: all 2^n patterns are tried.
    p = permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    mean = differences.mean()
    print(f"{row:13} - {reference:17}  {mean:+.2f} ± {half:.2f} points, {len(seeds)} seeds, p = {p:.4f}")
    chart.append((f"{row}\nminus {reference}", [Dot(mean, mean - half, mean + half, 2, differences.tolist())]))
print("p before Holm's correction over the six; docs/study.md has the plan, the corrected values and the verdicts")

title, note = "The study on CIFAR-10, computed again", "left of zero: the first of the two has fewer errors"
x = "points of test error: mean, 95 % interval, each seed"
rows = dot_chart(title, chart, x, left=170, width=660, through=[0.0])
panel = Panel(rows, dot_chart_height(len(chart)), 660, note)
Path("differences.svg").write_text(picture(title, [panel]), encoding="utf-8")
