"""Peers or more epochs: the same computation spent on either, from a short training to a long one.

    python benchmarks/peers_or_epochs.py --data-root data --seeds 2 -o docs/worth.md    # two hours of two cores

A step of PCL with three peers costs four of the plain network, so in each line Baseline trains four times the
epochs of PCL; both keep the paper's schedule in fractions. Setting, runs and their directory are those of the
protocol `mini`: what `coterie reproduce table1` has trained is not repeated, and what was interrupted goes on.
The table replaces what stands in the document between `<!-- peers or epochs -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from coterie.experiments.protocols import MINI
from coterie.experiments.render import place
from coterie.experiments.reproduce import Reproduction
from coterie.experiments.results import lines
from coterie.experiments.runner import Local, run
from coterie.experiments.tables import Cell, cells

LENGTHS = (38, 75, 150, 300)
"""Epochs of PCL."""
COST = 4
BEGIN = "<!-- peers or epochs -->"


def row(name: str, epochs: int, seeds: int) -> Cell:
    """A row of Table 1 with another number of epochs; the protocol's own number gives the protocol's own runs."""
    own = next(cell for cell in cells("table1", MINI, seeds) if cell.row == name)
    return replace(own, jobs=tuple(replace(job, options={**job.options, "epochs": epochs}) for job in own.jobs))


def table(out: Path, seeds: int) -> str:
    found = [
        "| epochs: Baseline, PCL | Baseline | PCL | PCL - Baseline, same computation |",
        "| --- | --: | --: | --: |",
    ]
    for epochs in LENGTHS:
        compared = [row("Baseline", COST * epochs, seeds), row("PCL", epochs, seeds)]
        alone, peers = lines("table1", compared, compared, out)
        last = "" if peers.difference is None else peers.difference.text()
        found.append(f"| {COST * epochs}, {epochs} | {alone.error.text()} | {peers.error.text()} | {last} |")
    return "\n".join(found) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/mini"), help="the directory of runs")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--processes", type=int, help="runs at once; by default one per GPU or core")
    parser.add_argument("--show", action="store_true", help="train nothing")
    parser.add_argument("-o", "--into", type=Path, help="the document; by default the table is printed")
    given = parser.parse_args()
    made = Reproduction("table1", MINI, given.out, given.seeds, data_root=given.data_root)
    if not given.show:
        wanted = [
            job
            for epochs in LENGTHS
            for name, length in (("PCL", epochs), ("Baseline", COST * epochs))
            for job in row(name, length, given.seeds).jobs
        ]
        made.check(wanted)
        made.prepare()
        run(wanted, given.out, Local(given.out, made.roots(wanted), given.processes, threads=1))
    found = table(given.out, given.seeds)
    if given.into:
        place(given.into, BEGIN, found)
    else:
        print(found, end="")


if __name__ == "__main__":
    main()
