"""The notebook runs, and its stored outputs are what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells print and show, without progress and warnings, whose number depends on the machine."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kept = [o for o in outputs if o.get("name") == "stdout" or o.output_type == "execute_result"]
    return [output.text if "text" in output else output.data["text/plain"] for output in kept]


@pytest.mark.slow  # half a minute
def test_the_notebook_runs_and_shows_what_is_stored(tmp_path: Path) -> None:
    stored, fresh = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    assert 6 <= len(stored.cells) <= 10
    for cell in fresh.cells:
        if cell.cell_type == "code":
            assert cell.outputs or "class Net" in cell.source
            cell.outputs = []
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(fresh, timeout=200, kernel_name="python3", coalesce_streams=True, resources=resources).execute()
    assert printed(fresh)[-1] == "Net, 5,226 parameters, written to student.onnx\n"
    errors = re.fullmatch(r"alone +([\d.]+) % errors\nwith peers +([\d.]+) % errors\n", printed(fresh)[-2])
    assert errors is not None and float(errors[1]) < 25 and float(errors[2]) < 25
    without_digits = [[re.sub(r"[\d.]+", "#", text) for text in printed(notebook)] for notebook in (stored, fresh)]
    assert without_digits[0] == without_digits[1]
    (table,) = [o.data["text/html"] for c in fresh.cells for o in c.get("outputs", []) if "<table>" in str(o)]
    assert "mean1 (deployed)" in table and "<button" not in table
