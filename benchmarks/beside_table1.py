"""Trials beside Table 1 of the protocol `mini`: its rows with other lengths, another weight decay or teacher.

    python benchmarks/beside_table1.py epochs --data-root data --seeds 2 -o docs/worth.md  # an hour of two cores
    python benchmarks/beside_table1.py decay --data-root data --seeds 1 -o docs/results.md  # half an hour
    python benchmarks/beside_table1.py teacher --data-root data --seeds 1 -o docs/results.md  # a quarter

`epochs`: peers or more epochs, the same computation spent on either. A step of PCL with three peers costs four of
the plain network, so in each line Baseline trains four times the epochs of PCL; both keep the paper's schedule in
fractions. `decay`: `mini` has 6,000 steps where the paper's training has 117,300, so that the paper's weight decay
shrinks the weights little; 0.01 shrinks them as much over the training as the paper's does over its own.
`teacher`: KDCL takes, for each image, the network that was best by the label; here also their mean.

Settings, runs and their directory are those of `coterie reproduce table1`: what it has trained is not repeated,
and what was interrupted goes on. The table replaces what stands in the document between `<!-- trial: epochs -->`
(or another name) and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coterie.experiments.finished import errors_of
from coterie.experiments.launch_local import LocalLauncher
from coterie.experiments.runner import run_jobs
from coterie.metrics.seeds import Spread, paired
from coterie.paper.cells import ResultCell, table_cells
from coterie.paper.document import write_block
from coterie.paper.protocols import MINI, Options
from coterie.paper.reproduce import Reproduction
from coterie.paper.results import ResultRuns

Trial = Mapping[str, Mapping[str, Options]]
"""For each line of the trial's table, by its name: rows of Table 1, and what is other about them."""

TRIALS: dict[str, Trial] = {
    "epochs": {
        f"{4 * n} plain epochs, {n} of PCL": {"Baseline": {"epochs": 4 * n}, "PCL": {"epochs": n}}
        for n in (38, 75, 150, 300)
    },
    "decay": {
        f"weight decay {decay:g}": {
            name: {"optimizer.weight_decay": decay} for name in ("Baseline", "KDCL", "PCL")
        }
        for decay in (5e-4, 1e-2)
    },
    "teacher": {
        "KDCL's teacher: the best by the label": {"PCL": {}, "KDCL": {}},
        "KDCL's teacher: the mean of all": {"PCL": {}, "KDCL": {"method.teacher": "mean"}},
    },
}


def row(name: str, changes: Options, seeds: int) -> ResultCell:
    """A row of Table 1 with other options; where they are the protocol's own, with the protocol's own runs."""
    own = next(cell for cell in table_cells("table1", MINI, seeds) if cell.row == name)
    return replace(own, jobs=tuple(replace(job, options={**job.options, **changes}) for job in own.jobs))


def table(trial: Trial, out: Path, seeds: int) -> str:
    """Errors, in brackets of the averaged weights; and the difference of the last column to the one before it.

    Over the seeds that all of its cells have, so that lines can be compared too.
    """
    *_, before, last = columns = list(next(iter(trial.values())))
    text = [f"|  | {' | '.join(columns)} | {last} - {before} |", "| --- |" + " --: |" * (len(columns) + 1)]
    runs = ResultRuns(out, further_seeds=True)
    cells = [row(*cell, seeds) for rows in trial.values() for cell in rows.items()]
    compared = iter(runs.common_seeds(cells, kinds=("done",)))
    for label in trial:
        finished = [{job.seed: runs.state(job).result for job in next(compared).jobs} for _ in columns]
        errors = [errors_of(own, None) for own in finished]
        averaged = [Spread.of(errors_of(own, "mean1").values()) for own in finished]
        texts = [
            f"{Spread.of(own.values()).text()} ({mean.mean:.2f})" if own else ""
            for own, mean in zip(errors, averaged, strict=True)
        ]
        difference = paired(errors[-1], errors[-2])
        text.append(f"| {label} | {' | '.join(texts)} | {difference.text() if difference else ''} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/mini"), help="the directory of runs")
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--processes", type=int, help="runs at once; by default one per GPU or core")
    parser.add_argument("--show", action="store_true", help="train nothing")
    parser.add_argument("-o", "--into", type=Path, help="the document; by default the table is printed")
    arguments = parser.parse_args()
    failed: dict[str, str] = {}
    trial = TRIALS[arguments.trial]
    reproduction = Reproduction("table1", MINI, arguments.out, arguments.seeds, data_root=arguments.data_root)
    if not arguments.show:
        rows = [row(name, changes, arguments.seeds) for line in trial.values() for name, changes in line.items()]
        wanted = [job for cell in rows for job in cell.jobs]
        reproduction.check(wanted)
        reproduction.prepare()
        launcher = LocalLauncher(arguments.out, reproduction.roots(wanted), arguments.processes, threads=1)
        failed = run_jobs(wanted, arguments.out, launcher)
    text = table(trial, arguments.out, arguments.seeds)
    if arguments.into:
        write_block(arguments.into, f"<!-- trial: {arguments.trial} -->", text)
    else:
        print(text, end="")
    if failed:
        sys.exit(f"{len(failed)} runs failed: {'; '.join(f'{name}: {why}' for name, why in failed.items())}")


if __name__ == "__main__":
    main()
