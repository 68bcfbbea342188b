"""Search for a method of ours: train each candidate on the study's cifar regime, judged on unused training images.

    python benchmarks/search.py [--data-root data]     train what is missing, one run after the other; resumes
    python benchmarks/search.py --show                 print the table

Every candidate has the same tries: without CutMix and with CutMix at 0.25 and 0.5, two seeds each. The seeds are
those of the study's screening, none of the study's own. The test images are not used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean

from coterie.paper.study import CIFAR_STUDY, HELD_OUT, SCREENING_SEEDS

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "results" / "search"
PROBABILITIES = (0.0, 0.25, 0.5)
TWO = {"peers": 2}
CANDIDATES: dict[str, dict[str, object]] = {
    "alone": {"method": "Baseline"},
    "label choice": {"method": "KDCL", **TWO},
    "mean of both": {"method": "KDCL", "method.teacher": "mean", **TWO},
    "soft gate": {"method": "candidates.SoftGate", **TWO},
    "only wrong": {"method": "candidates.OnlyWrong", **TWO},
    "standardised": {"method": "candidates.Standardised", **TWO},
    "branches": {"method": "candidates.Branches", **TWO},
    "two views": {"method": "candidates.TwoViews"},
    "own average": {"method": "candidates.OwnAverage"},
    "average candidates": {"method": "candidates.AverageCandidates"},
    "before mixing": {"method": "candidates.BeforeMixing"},
    "last epoch": {"method": "candidates.LastEpoch", "data": "candidates.cifar10"},
    "label choice, clean tail": {"method": "KDCL", **TWO, "mix.until": 0.8},
}


def options(name: str, probability: float, seed: int, data_root: str) -> dict[str, object]:
    """The options of `coterie train` for one run."""
    (setting,) = CIFAR_STUDY.settings["study"]
    chosen = {
        **setting.options,
        "data.val_limit": HELD_OUT,
        "data.root": data_root,
        "seed": seed,
        **CANDIDATES[name],
    }
    until = chosen.pop("mix.until", None)
    if name == "before mixing":
        chosen["method.probability"] = probability
    elif probability:
        chosen |= {"mix": "CutMix", "mix.probability": probability}
        chosen |= {} if until is None else {"mix.until": until}
    return chosen


def directory(name: str, probability: float, seed: int) -> Path:
    return RUNS / f"{name.replace(', ', '-').replace(' ', '-')}-p{probability:g}-s{seed}"


def records(run: Path) -> list[dict[str, object]]:
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def finished(run: Path) -> bool:
    return bool(rows := records(run)) and rows[-1]["epoch"] == 149


def tries() -> list[tuple[str, float, int]]:
    """Seed by seed, so that whenever it stops the candidates have been given the same."""
    runs = [(n, p, s) for s in SCREENING_SEEDS for p in PROBABILITIES for n in CANDIDATES]
    return [t for t in runs if t[1] or "clean tail" not in t[0]]  # without CutMix it has no tail


def train(data_root: str) -> None:
    for name, probability, seed in tries():
        out = directory(name, probability, seed)
        if finished(out):
            continue
        flags = [w for k, v in options(name, probability, seed, data_root).items() for w in (f"--{k}", str(v))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "coterie", "train", *flags, "--out", str(out.relative_to(ROOT))]
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL).returncode
        print(f"{out.name}: {'trained' if code == 0 else f'exit code {code}'}", flush=True)


def show() -> None:
    """Held-out error of the last epoch in per cent for each probability: deployed network, and in brackets NLL."""
    print("| candidate | " + " | ".join(f"p = {p:g}" for p in PROBABILITIES) + " |\n|---|---|---|---|")
    for name in CANDIDATES:
        cells = []
        for probability in PROBABILITIES:
            runs = [directory(name, probability, seed) for seed in SCREENING_SEEDS]
            rows = [records(run)[-1] for run in runs if finished(run)]
            scores = [row["predictors"][row["deployed"]] for row in rows]  # type: ignore[index]
            errors = ", ".join(f"{s['error']:.2f}" for s in scores)
            cells.append(f"{mean(s['error'] for s in scores):.2f} ({errors})" if scores else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    show() if arguments.show else train(arguments.data_root)
