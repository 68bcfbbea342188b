"""Fixtures of the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.paper.cells import table_cells
from coterie.paper.study import STUDIES, Study
from tests.helpers.study import ERRORS, toy_study, write_study_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """All eight seeds of the primary rows."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "protocol.json").write_text('{"protocol": "toy"}')
    for cell in table_cells("study", toy_study(), 8):
        for seed, error in enumerate(ERRORS.get(cell.row, [])):
            write_study_run(out, cell, seed, error)
    return out


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Study:
    protocol = toy_study()
    monkeypatch.setitem(STUDIES, "toy", protocol)
    return protocol
