"""The results of `coterie bench -o FILE` and of the scripts beside this one, drawn into the documents.

    coterie bench -o bench.json && python benchmarks/floor.py -o floor.json
    python benchmarks/draw_bench.py bench.json floor.json      # by default benchmarks/results/bench.json

The tables replace what stands between `<!-- coterie bench -->` and `<!-- end -->`; the charts,
bench_methods.svg and bench_peers.svg, are written beside the document.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import floor
import growth
import parts
import startup
from goals import goals_table
from harness import ROOT
from matplotlib import rcParams
from matplotlib.figure import Figure

from coterie.bench.command import SECTIONS, describe_setup
from coterie.paper.render import place
from coterie.report.table import to_markdown

BEGIN = "<!-- coterie bench -->"
TABLES = {name: tables for name, (_, tables) in SECTIONS.items()}
TABLES |= {module.__name__: module.tables for module in (startup, floor, parts, growth)}


def write_tables(results: list[dict[str, Any]]) -> str:
    """Return every table as Markdown, under what was measured."""
    text = []
    for result in results:
        text.append(f"`{result['environment']['command']}`: {describe_setup(result)}\n")
        for name, section in result["sections"].items():
            for table in TABLES[name](section):
                text.append(to_markdown(table) + (f"\n{table.note}\n" if table.note else ""))
    sections = {name: section for result in results for name, section in result["sections"].items()}
    text.append(to_markdown(goals_table(sections, any(result["quick"] for result in results))))
    return "\n".join(text)


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


def peers(rows: dict[str, Any]) -> Figure:
    """PCL's step by the number of peers."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    counts = [int(m) for m in rows]
    axes.plot(counts, [row["theory"] for row in rows.values()], "--", color="C1", label="multiply-adds, 4m/3")
    axes.plot(counts, [row["ratio"] for row in rows.values()], "o-", color="C0", label="measured, quartiles")
    quartiles = zip(*(row["quartiles"] for row in rows.values()), strict=True)
    axes.fill_between(counts, *quartiles, color="C0", alpha=0.15, linewidth=0)
    axes.set(xlabel="peers m", ylabel="PCL step / plain step")
    axes.legend()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, default=[ROOT / "benchmarks" / "results" / "bench.json"])
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "performance.md")
    arguments = parser.parse_args()
    results = [json.loads(file.read_text()) for file in arguments.results]
    place(arguments.document, BEGIN, write_tables(results))
    rcParams["svg.hashsalt"] = "bench"  # the same picture is the same file
    sections = {name: section for result in results for name, section in result["sections"].items()}
    if "steps" in sections:
        _save(methods(sections["steps"]["methods"]), arguments.document.parent / "bench_methods.svg")
    if "growth" in sections:
        _save(peers(sections["growth"]["peers"]), arguments.document.parent / "bench_peers.svg")


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
