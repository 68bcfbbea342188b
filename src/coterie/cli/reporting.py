"""Commands that lay many runs side by side: reproduce, report."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import InputError, printable

if TYPE_CHECKING:
    from ..report.page import Report


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
    """Train the missing runs of a table or figure of the paper, or of the study, and show the results.

    Args:
        what: table1, table2, table3, table4, fig3, fig4 or fig5; study, screening or split.
        protocol: paper, mini, mini100 or smoke for the paper's tables and figures; cifar, fashion or rich for
            the study.
        only: rows by name, such as 'PCL;ONE'; or words separated by commas, which must all occur in the row,
            setting, method, network or data of a run.
        seeds: number of seeds; by default 3, for the study as planned. Further seeds of the paper's tables are
            shown if they were trained.
        out: the directory of runs; by default results/PROTOCOL, for the study results/study/PROTOCOL.
        data_root: the directory of the data sets; ImageNet is its folder `imagenet`.
        against: the row that others are compared with; by default the first row, for the study the reference of
            each row.
        launcher: processes on this machine, or a Ray cluster (RAY_ADDRESS).
        processes: number of runs at the same time; by default one per GPU, without GPUs one per core.
        threads: CPU threads of each run.
        shard: i/n trains every n-th run, beginning with run i, for batch systems.
        dry_run: list the runs, with an estimate of their time on this machine.
        show: train nothing, and show the runs that exist.
        format: a table for the terminal, Markdown or JSON.
        into: write the Markdown table to its place in this document.
        brief: show fewer columns of the paper's tables, or only the main table of the study.
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
    against: str = "",
    figure: str | None = None,
    curves: str | None = None,
) -> None:
    """Write an HTML report of runs: tables, curves, costs, mistakes.

    Args:
        runs: run directories, or directories that contain run directories.
        output: the file to write; by default report.html.
        text: print the tables on the terminal instead.
        format: write the tables for a paper instead, to the output file or the terminal.
        watch: update the page while the runs go on, until interrupted.
        against: a method, row or run directory that the others are compared with; by default Baseline.
        figure: write one chart as an SVG file instead: error, loss-terms, diversity and others; a wrong name
            lists them all.
        curves: write the values of all curves to this CSV file instead, one line per run, epoch and predictor.
    """
    from ..paper.sections import experiment_sections
    from ..report import as_text, page
    from ..report.curve_file import curves_csv

    if text + watch + sum(option is not None for option in (format, figure, curves)) > 1:
        raise InputError("--text, --format, --watch, --figure and --curves exclude each other: choose one.")
    if output is not None and curves is not None:
        raise InputError("--curves names its file itself: leave out --output.")
    paths, file = [Path(run) for run in runs], Path(output or "report.html")
    if watch:
        print(printable(f"{file} follows {', '.join(runs)}; Ctrl-C ends this."), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            page.watch_runs(paths, file, experiment_sections, against)
        return
    if figure is not None and Path(output or "x.svg").suffix.lower() != ".svg":
        raise InputError(f"A chart is written as SVG: name a file that ends in .svg, not {output}.")
    composed = page.compose(paths, experiment_sections(paths), against)
    if text:
        as_text.print_report(composed)
    elif format is not None and output is None:
        print(as_text.publication_tables(composed, format), end="")
    elif format is not None:
        page.save_text(file, as_text.publication_tables(composed, format))
    elif figure is not None:
        _write_figure(composed, figure, Path(output or f"{figure}.svg"))
    elif curves is not None:
        page.save_text(Path(curves), curves_csv(composed.groups), "--curves")
        print(f"{curves}: the curves, a line for each run, epoch and predictor.")
    else:
        page.save_text(file, page.render_page(composed, page.default_title(composed)))
        print(printable(f"{file}: open it in a browser; it needs nothing else."))


def _write_figure(composed: Report, name: str, file: Path) -> None:
    from ..report import page, picture

    charts = composed.figures(name)
    page.save_text(file, picture.stacked_picture(name.replace("-", " ").capitalize(), charts))
    print(printable(f"{file}: the chart '{name}' of the page."))
