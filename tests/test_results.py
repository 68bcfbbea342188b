"""What the documents say of results is what the results in this repository say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from coterie.experiments.protocols import PROTOCOLS
from coterie.experiments.render import END, markdown
from coterie.experiments.reproduce import Reproduction

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"<!-- coterie reproduce (?P<told>.*?) -->\n(?P<text>.*?)" + END, re.DOTALL)
TABLES = [
    pytest.param(match["told"], match["text"], id=f"{file.name}: {match['told']}")
    for file in (ROOT / "README.md", ROOT / "docs" / "results.md")
    for match in PLACE.finditer(file.read_text())
]


def test_both_documents_have_table_1() -> None:
    assert sum(str(table.values[0]).startswith("table1 ") for table in TABLES) >= 2


@pytest.mark.parametrize(("told", "text"), TABLES)
def test_a_table_in_a_document_is_that_of_the_results(told: str, text: str) -> None:
    what, *options = shlex.split(told)
    named = dict(zip(options[::2], options[1::2], strict=True))
    protocol = PROTOCOLS[named.pop("--protocol")]
    seeds, only, against = int(named.pop("--seeds", "3")), named.pop("--only", ""), named.pop("--against", "")
    made = Reproduction(what, protocol, ROOT / "results" / protocol.name, seeds, only, against=against)
    assert not named and text.strip() == markdown(made.lines()).strip(), f"renew it: {renewal(told)}"


def renewal(told: str) -> str:
    return f"coterie reproduce {told} --show --into FILE"


def test_results_name_no_place_of_a_machine() -> None:
    files = [file for file in (ROOT / "results").rglob("*") if file.suffix in (".yaml", ".json")]
    assert files
    for file in files:
        text = file.read_text()
        assert not re.search(r"[\s\"'=](/|~)\w", text), file
        if file.name == "environment.json":
            assert json.loads(text)["commit"], file
