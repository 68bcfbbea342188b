"""Wrong calls of every command end with one sentence and an exit code, and change no file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from coterie.cli.main import COMMANDS
from tests.helpers.common import build_once, not_on_windows
from tests.helpers.wrong_calls import PLACEHOLDERS, Ending, call, listing, make_files, words_of

TABLE = (Path(__file__).parent / "wrong_calls.txt").read_text(encoding="utf-8")
DAILY, SLOW = (
    [line.split(" | ") for line in part.splitlines() if line and not line.startswith("#")]
    for part in TABLE.split("# Slow:\n")
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, exports, photographs and files that are none of these."""
    return build_once(tmp_path_factory, "wrong_calls", make_files)


def test_the_table_has_every_command_and_more_than_300_calls() -> None:
    assert len(DAILY) + len(SLOW) >= 300
    assert {row[1].split()[0] for row in DAILY} >= COMMANDS.keys()
    assert all(len(row) == 3 and row[0] in "12" and len(row[2]) > 8 for row in [*DAILY, *SLOW])


@not_on_windows
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_calls(files: Path, command: str) -> None:
    _check([row for row in DAILY if row[1].split()[0] == command], files)


@not_on_windows
def test_wrong_commands(files: Path) -> None:
    _check([row for row in DAILY if row[1].split()[0] not in COMMANDS], files)


@not_on_windows
@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({row[1].split()[0] for row in SLOW}))
def test_wrong_calls_that_build_a_network(files: Path, command: str) -> None:
    _check([row for row in SLOW if row[1].split()[0] == command], files)


def _check(rows: list[list[str]], files: Path) -> None:
    """Make the calls of some rows in the folder; collect all that end otherwise than the table says."""
    assert rows
    problems, before = [], listing(files)
    for code, line, beginning in rows:
        with contextlib.chdir(files):
            ending = call(words_of(line))
        sentence = _sentence(ending, files)
        if str(ending.code) != code or sentence is None or not sentence.startswith(beginning):
            problems.append(f"{line}: {ending.code} {ending.errors}{ending.trace}")
        after = listing(files)
        if changed := {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}:
            problems.append(f"{line}: changed {sorted(changed)}")
            before = after
    assert not problems, "\n".join(problems)


def _sentence(ending: Ending, files: Path) -> str | None:
    """Return the one sentence of an ending, without its folder and with its long names shortened, or None.

    Warnings may stand before it: of a damaged checkpoint, for example.
    """
    lines = [line for line in ending.errors.splitlines() if not line.startswith("coterie: warning: ")]
    if len(lines) != 1 or not lines[0].startswith("coterie: ") or "error in Coterie" in lines[0]:
        return None
    return lines[0].removeprefix("coterie: ").replace(f"{files}/", "").replace(PLACEHOLDERS["{long}"], "{long}")
