"""The result of `coterie bench -o FILE` in the documents: its tables, and two charts.

    coterie bench -o benchmarks/results/bench.json
    python benchmarks/draw_bench.py [benchmarks/results/bench.json] [docs/performance.md]

The tables replace what stands between `<!-- coterie bench -->` and `<!-- end -->`; the charts,
bench_methods.svg and bench_peers.svg, are written beside the document.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

from coterie.bench.tables import about, tables
from coterie.paper.render import place
from coterie.report.formats import markdown

BEGIN = "<!-- coterie bench -->"
ROOT = Path(__file__).parents[1]


def written(result: dict[str, Any]) -> str:
    """Every table as Markdown, under what was measured."""
    parts = [f"`{result['environment']['command']}`: {about(result)}\n"]
    for table in tables(result):
        parts.append(markdown(table) + (f"\n{table.note}\n" if table.note else ""))
    return "\n".join(parts)


def methods(rows: dict[str, Any]) -> Figure:
    """Measured cost of a step beside the theoretical one, with the quartiles."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    places, names = range(len(rows)), list(rows)
    ratios = [row["ratio"] for row in rows.values()]
    low = [max(0.0, r - row["quartiles"][0]) for r, row in zip(ratios, rows.values(), strict=True)]
    high = [max(0.0, row["quartiles"][1] - r) for r, row in zip(ratios, rows.values(), strict=True)]
    axes.bar([i - 0.2 for i in places], ratios, 0.4, yerr=[low, high], capsize=3, label="measured, quartiles")
    axes.bar([i + 0.2 for i in places], [row["theory"] for row in rows.values()], 0.4, label="multiply-adds")
    axes.set_xticks(list(places), names, rotation=30, ha="right")
    axes.set(ylabel="step / plain step")
    axes.legend()
    return figure


def peers(found: dict[str, Any]) -> Figure:
    """PCL's step by the number of peers."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    counts = [int(m) for m in found]
    axes.plot(counts, [row["theory"] for row in found.values()], "--", color="C1", label="multiply-adds, 4m/3")
    axes.plot(counts, [row["ratio"] for row in found.values()], "o-", color="C0", label="measured, quartiles")
    quartiles = zip(*(row["quartiles"] for row in found.values()), strict=True)
    axes.fill_between(counts, *quartiles, color="C0", alpha=0.15, linewidth=0)
    axes.set(xlabel="peers m", ylabel="PCL step / plain step")
    axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", nargs="?", type=Path, default=ROOT / "benchmarks" / "results" / "bench.json")
    parser.add_argument("document", nargs="?", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args()
    result = json.loads(given.result.read_text())
    place(given.document, BEGIN, written(result))
    rcParams["svg.hashsalt"] = "bench"  # the same picture is the same file
    sections = result["sections"]
    if "steps" in sections:
        _save(methods(sections["steps"]["methods"]), given.document.parent / "bench_methods.svg")
    if "growth" in sections:
        _save(peers(sections["growth"]["peers"]), given.document.parent / "bench_peers.svg")


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
