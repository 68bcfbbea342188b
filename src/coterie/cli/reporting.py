"""Commands that lay many runs side by side: reproduce, report."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from ..errors import InputError, printable


def reproduce(
    what: str,
    protocol: str = "mini",
    only: str = "",
    seeds: int | None = None,
    out: str = "",
    data_root: str = "data",
    against: str = "",
    launcher: Literal["local", "ray"] = "local",
    processes: int | None = None,
    threads: int = 1,
    shard: str = "",
    dry_run: bool = False,
    show: bool = False,
    format: Literal["table", "markdown", "json"] = "table",
    into: str = "",
    brief: bool = False,
) -> None:
    """A table or figure of the paper, or the study: train what is missing of it, show what there is.

    Args:
        what: table1, table2, table3, table4, fig3, fig4 or fig5; study, or its screening or split.
        protocol: paper, mini, mini100 or smoke for the paper's; cifar, fashion or rich for the study.
        only: rows by name, such as 'PCL;ONE', or comma-separated words that a cell must all have in its row,
            setting, method, network or data.
        seeds: runs of each cell, by default 3, or as many as the study plans; of the paper's tables what there is
            of further seeds is shown too.
        out: the directory of runs; by default results/PROTOCOL, of the study results/study/PROTOCOL.
        data_root: where the data sets are; ImageNet is the folder `imagenet` in there.
        against: the row that the others are compared with; by default the first, of the study each row's
            own reference.
        launcher: processes on this machine, or a Ray cluster (RAY_ADDRESS).
        processes: how many runs at once; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each run.
        shard: i/n does every n-th run from number i on, for batch systems.
        dry_run: list the runs, with an estimate of their time here.
        show: train nothing, show what there is.
        format: a table for the terminal, Markdown or JSON.
        into: write the Markdown table to its place in this document instead.
        brief: show error, difference and cost alone, of the paper's tables.
    """
    from ..experiments.runner import raise_failed
    from ..paper.dry_run import list_runs
    from ..paper.reproduce import Reproduction

    if threads < 1 or (processes is not None and processes < 1):
        raise InputError("--processes and --threads must be at least 1.")
    directory = Path(out) if out else None
    reproduction = Reproduction(what, protocol, directory, seeds, only, data_root, against, brief)
    jobs = reproduction.jobs(shard)
    if not show:
        reproduction.check_screened()
    if into:
        reproduction.check_document(Path(into))
    if dry_run:
        list_runs(reproduction, jobs, processes, threads)
        return
    failed = {} if show else reproduction.train(jobs, launcher, processes, threads)
    reproduction.present(format, into)
    raise_failed(failed)


def report(
    runs: list[str],
    output: str | None = None,
    text: bool = False,
    format: Literal["markdown", "csv", "latex"] | None = None,
    watch: bool = False,
) -> None:
    """One page that shows what happened: tables, curves, costs, mistakes.

    Args:
        runs: run directories, or directories that contain some, such as those of `coterie reproduce`.
        output: the file to write; by default report.html.
        text: print the tables here instead.
        format: write the tables for a paper instead, to the file or here.
        watch: write the page again whenever the runs have something new, until interrupted.
    """
    from ..paper.sections import experiment_sections
    from ..report import as_text, page

    if text + (format is not None) + watch > 1:
        raise InputError("--text, --format and --watch exclude each other: choose one.")
    paths, file = [Path(run) for run in runs], Path(output or "report.html")
    if watch:
        print(printable(f"{file} follows {', '.join(runs)}; Ctrl-C ends this."), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            page.watch_runs(paths, file, experiment_sections)
        return
    paper = experiment_sections(paths)
    if text:
        as_text.print_report(page.compose(paths, paper))
    elif format is not None and output is None:
        print(as_text.publication_tables(page.compose(paths, paper), format), end="")
    elif format is not None:
        page.save_text(file, as_text.publication_tables(page.compose(paths, paper), format))
    else:
        page.write_report(paths, file, paper=paper)
        print(printable(f"{file}: open it in a browser; it needs nothing else."))
