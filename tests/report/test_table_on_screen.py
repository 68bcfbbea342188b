"""A table on a narrow screen: headings and texts are wrapped, then columns go below; nothing is broken."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from coterie.report.table import Table, number, print_table, print_text, text
from tests.helpers.terminal import plain_text

COLUMNS = ["predictor", "error %", "balanced error %", "parameters", "multiply-adds"]
ROWS = [
    [text(name), number(12.345, "{:.2f}"), number(13.5, "{:.2f}"), number(466906), number(69_124_096)]
    for name in ("peer1", "mean1 (deployed)")
]


def lines(table: Table, width: int, terminal: bool = True) -> list[str]:
    file = io.StringIO()
    print_table(table, Console(file=file, width=width, force_terminal=terminal, color_system=None))
    return plain_text(file.getvalue()).splitlines()


def heads(output: list[str]) -> list[list[str]]:
    """The headings of each piece, wrapped ones put together."""
    pieces: list[list[str]] = []
    for line in output:
        if line.startswith("┏"):
            pieces.append([])
        if line.startswith("┃"):
            cells = [cell.strip() for cell in line.strip("┃").split("┃")]
            pieces[-1] = [f"{a} {b}".strip() for a, b in zip(pieces[-1] or [""] * len(cells), cells, strict=True)]
    return pieces


def test_headings_are_wrapped_before_columns_are_moved() -> None:
    assert heads(lines(Table("", COLUMNS, ROWS), 100)) == [COLUMNS]
    output = lines(Table("", COLUMNS, ROWS), 70)
    assert heads(output) == [COLUMNS] and max(map(len, output)) <= 70
    assert sum(line.startswith("┃") for line in output) > 1


def test_columns_without_room_continue_below_with_the_first_repeated() -> None:
    output = lines(Table("", COLUMNS, ROWS), 50)
    assert heads(output) == [COLUMNS[:3], [COLUMNS[0], *COLUMNS[3:]]] and max(map(len, output)) <= 50
    assert sum("mean1 (deployed)" in line for line in output) == 2
    assert sum("69,124,096" in line for line in output) == 2


def test_two_columns_are_repeated_where_the_first_does_not_tell_rows_apart() -> None:
    rows = [[text("PCL"), text(kind), *row[1:]] for kind, row in zip(("student", "ensemble"), ROWS, strict=True)]
    table = Table("", ["method", "network", *COLUMNS[1:]], rows)
    pieces = heads(lines(table, 50))
    assert len(pieces) == 2 and all(piece[:2] == ["method", "network"] for piece in pieces)


def test_texts_are_wrapped_between_words_and_long_words_stay_whole() -> None:
    command = "coterie train --data /a/folder/with/a/long/name --out runs/first --method PCL --epochs 30"
    output = lines(Table("", ["run", "command"], [[text("first"), text(command)]]), 50)
    assert max(map(len, output)) <= 50
    cells = " ".join(line.split("│")[2].strip() for line in output if line.startswith("│"))
    assert cells == command
    path = "/" + "x" * 90
    assert any(path in line for line in lines(Table("", ["run"], [[text(path)]]), 50))


def test_a_file_gets_whole_tables_and_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert heads(lines(Table("", COLUMNS * 4, [row * 4 for row in ROWS]), 80, terminal=False)) == [COLUMNS * 4]
    file = io.StringIO()
    print_text("word " * 50 + "end", Console(file=file, width=80))
    assert file.getvalue() == "word " * 50 + "end\n"
    file = io.StringIO()
    print_text("word " * 50 + "end", Console(file=file, width=80, force_terminal=True))
    assert max(map(len, file.getvalue().splitlines())) <= 80 and file.getvalue().split() == ["word"] * 50 + ["end"]
