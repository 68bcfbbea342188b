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

from coterie.bench.command import SECTIONS, describe_setup
from coterie.paper.document import write_block
from coterie.report.charts import Curve, Dot, dot_chart, dot_chart_height, line_chart
from coterie.report.picture import Panel, picture
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


def methods(rows: dict[str, Any]) -> str:
    """Draw the measured cost of a step, with its quartiles, over the theoretical one."""
    title = "Cost of a step by method"
    marks = [
        (name, [Dot(row["ratio"], *row["quartiles"], colour=2), Dot(row["theory"], colour=1)])
        for name, row in rows.items()
    ]
    chart = dot_chart(title, marks, "step / plain step", left=110)
    return picture(
        title,
        [Panel(chart, dot_chart_height(len(rows)))],
        [("measured, quartiles", "c2"), ("multiply-adds", "c1")],
    )


def peers(rows: dict[str, Any]) -> str:
    """Draw PCL's step by the number of peers."""
    title, counts = "PCL's step by the number of peers", [int(m) for m in rows]
    low, high = zip(*(row["quartiles"] for row in rows.values()), strict=True)
    ratios, theory = ([row[name] for row in rows.values()] for name in ("ratio", "theory"))
    measured = Curve("measured, quartiles", counts, ratios, low, high, colour=2)
    counted = Curve("multiply-adds, 4m/3", counts, theory, colour=1, dash=1)
    legend = [(line.name, line.css) for line in (measured, counted)]
    return picture(
        title, [Panel(line_chart(title, [measured, counted], "peers m", "PCL step / plain step"))], legend
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path, default=[ROOT / "benchmarks" / "results" / "bench.json"])
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "performance.md")
    arguments = parser.parse_args()
    results = [json.loads(file.read_text()) for file in arguments.results]
    write_block(arguments.document, BEGIN, write_tables(results))
    sections = {name: section for result in results for name, section in result["sections"].items()}
    charts: dict[str, str] = {}
    if "steps" in sections:
        charts["bench_methods.svg"] = methods(sections["steps"]["methods"])
    if "growth" in sections:
        charts["bench_peers.svg"] = peers(sections["growth"]["peers"])
    for name, svg in charts.items():
        (arguments.document.parent / name).write_text(svg)


if __name__ == "__main__":
    main()
