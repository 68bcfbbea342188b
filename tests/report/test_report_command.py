"""`coterie report`: text, Markdown, CSV and LaTeX, watching a run, and bad input."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import _run, main
from coterie.errors import InputError
from tests.helpers.common import coterie, refused
from tests.helpers.report import Page, over_seeds


def test_text_markdown_csv_and_latex_hold_the_same_numbers(
    trained: Path,
    tmp_path: Path,
    shown: Page,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def said(*options: str) -> str:
        main(["report", str(trained), *options])
        return capsys.readouterr().out

    error, _ = shown.column("Results", "error %")[1]
    text = said("--text")
    assert error in text
    _, diversity = shown.lines["Diversity of peers, resnet8 on hostile"]["PCL, mean peers"]
    assert f"PCL, mean peers: {diversity[-1]} at 3" in text  # where a curve ends
    assert f"| PCL | {error} |" in said("--format", "markdown")  # bold is for differences
    assert said("--format", "markdown").startswith("Results, resnet8 on hostile\n\n| method |")
    latex = said("--format", "latex")
    assert error.replace("±", r"$\pm$") in latex and r"error \%" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    each = [trained / name for name in ("Baseline-0", "Baseline-1", "PCL-0", "PCL-1")]
    result = coterie("report", *each, "--format", "csv", "-o", tmp_path / "t.csv")
    assert result.returncode == 0, result.stderr
    first = (tmp_path / "t.csv").read_text().split("\n\n")[0]
    rows = list(csv.DictReader(io.StringIO(first)))
    last = over_seeds(trained, "PCL", lambda r: r["predictors"]["mean1"]["error"])[:, -1]
    assert rows[1]["table"] == "Results, resnet8 on hostile" and rows[1]["method"] == "PCL"
    assert float(rows[1]["error %"]) == pytest.approx(last.mean())
    assert float(rows[1]["error % std"]) == pytest.approx(last.std(ddof=1))
    balanced = over_seeds(trained, "PCL", lambda r: r["predictors"]["mean1"]["balanced_error"])[:, -1]
    assert float(rows[1]["balanced error %"]) == pytest.approx(balanced.mean())
    assert "balanced error %" in text and r"balanced error \%" in latex


def test_latex_and_markdown_escape_names() -> None:
    from coterie.report.table import Cell, Table, to_latex, to_markdown

    table = Table("t", ["a|b_c"], [[Cell(r"50 % of $x_1$ & {<b>} \ ~ ^ # | *", None, True)]])
    assert r"\textbf{50 \% of \$x\_1\$ \& \{$<$b$>$\} \textbackslash{} \textasciitilde{} " in to_latex(table)
    row = to_latex(Table("t", ["a"], [[Cell("[x]")], [Cell("*")]]))
    assert "\n[" not in row and "\n*" not in row  # after \\\\ these would be its options
    assert r"a\|b\_c" in to_markdown(table) and "&lt;b>" in to_markdown(table) and r"\| \*" in to_markdown(table)


def test_watch_follows_a_run_until_interrupted(copied: Path, tmp_path: Path) -> None:
    run, file = copied / "PCL-0", tmp_path / "live.html"
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    evaluation = (run / "evaluation.json").rename(run / "later.json")
    (run / "metrics.jsonl").write_text(lines[0])
    command = [sys.executable, "-m", "coterie", "report", str(run), "--watch", "-o", str(file)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # what a shell starts with & is deaf to it
    ) as process:
        try:
            _wait(lambda: file.exists() and "1 of 3 epochs so far" in file.read_text())
            assert 'http-equiv="refresh"' in file.read_text()
            with (run / "metrics.jsonl").open("a") as metrics:
                metrics.writelines(lines[1:])
            _wait(lambda: "epochs so far" not in file.read_text())
            assert 'http-equiv="refresh"' not in file.read_text()
            assert "Most confident mistakes" not in file.read_text()
            evaluation.rename(run / "evaluation.json")  # as at the end of a training
            _wait(lambda: "Most confident mistakes" in file.read_text())
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0 and "Traceback" not in process.stderr.read()  # type: ignore[union-attr]
        finally:
            process.kill()


def _wait(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not follow"
        time.sleep(0.1)


def test_bad_input_is_refused(trained: Path, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        with pytest.raises(InputError) as caught:
            _run(["report", *map(str, arguments)])
        return str(caught.value)

    assert "is not a directory" in refused("report", tmp_path / "none")
    assert "holds no run" in refusal(tmp_path)
    assert "markdown, csv, latex" in refusal(trained, "--format", "pdf")
    assert "exclude each other" in refusal(trained, "--text", "--watch")
    assert "runs is missing" in refusal()
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "r.html", tmp_path):
        assert "cannot be written" in (said := refusal(trained, "-o", place)) and "choose another `output`" in said
