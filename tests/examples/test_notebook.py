"""The notebook runs, and its stored outputs are what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text if "text" in output else output.data["text/plain"] for output in outputs]


def test_the_notebook_runs_and_shows_what_is_stored(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    assert 6 <= len(stored.cells) <= 10
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            assert cell.outputs or "class Net" in cell.source
            cell.outputs = []
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(fresh, timeout=200, kernel_name="python3", coalesce_streams=True, resources=resources).execute()
    last = re.fullmatch(r"Net, 5,226 parameters, ([\d.]+) % errors\n", printed(fresh)[-1])
    assert last is not None and float(last[1]) < 15
    without_digits = [[re.sub(r"[\d.]+", "#", text) for text in printed(notebook)] for notebook in (stored, fresh)]
    assert without_digits[0] == without_digits[1]
