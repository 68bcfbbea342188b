"""docs/log.md: the table of the search is that of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.paper.document import END
from tests.helpers.common import script

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results" / "search"
pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason="an sdist does not hold the records of results/")


def test_the_table_in_the_log_is_that_of_the_runs() -> None:
    search = script("search")
    document = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    written = document.partition(search.MARKER)[2].partition(END)[0]
    assert written.strip() == search.table().strip(), "python benchmarks/search.py --into docs/log.md"
    rows = {line.split("|")[1].strip(): line for line in written.splitlines() if line.startswith("| ")}
    last = json.loads((RUNS / "soft-gate-p0-s100" / "metrics.jsonl").read_text().splitlines()[-1])
    peers = [last["predictors"][name]["error"] for name in ("peer1", "peer2")]
    assert f"{sum(peers) / 2:.2f}" in rows["soft gate"]
