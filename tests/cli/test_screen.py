"""What stands on a screen of 80 columns: progress in one line that stays, tables that fold by columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.terminal import on_terminal, plain_text, screen

SMALL = ["--model", "resnet8", "--data", "digits", "--data.limit", "6", "--batch", "20", "--epochs", "3"]
TRAIN = ["train", *SMALL, "--method", "PCL", "--out", "run"]
COMMANDS = [
    ["evaluate", "run", "--calibrate"],
    ["report", "run", "--text"],
    ["methods"],
    ["methods", "PCL"],
    ["models"],
    ["cuts", "resnet8"],
    ["predict", "run", "missing.png"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("screen")


@pytest.fixture(scope="module")
def narrow(folder: Path) -> list[str]:
    return on_terminal([TRAIN, *COMMANDS], 80, folder)


def test_a_training_is_one_line_that_stays(narrow: list[str]) -> None:
    lines = [line for line in screen(narrow[0]) if line.strip()]
    assert all(len(line) <= 80 for line in lines), lines
    progress = [line for line in lines if "epoch " in line and "━" in line]
    assert len(progress) == 1, lines
    assert re.fullmatch(r"PCL  epoch 3/3  ━+  error [\d.]+ %  done(  balanced [\d.]+ %)?(  loss .*)?", progress[0])
    assert "distil_ensemble" not in progress[0]
    frames = [frame for frame in re.split(r"[\r\n]", plain_text(narrow[0])) if "━" in frame]
    assert frames and all(len(frame) <= 80 for frame in frames)
    assert any(
        word in " ".join(lines) for word in ("warning: averaged weights", "warning: ")
    )  # wrapped, not broken


def test_every_command_keeps_to_80_columns_and_breaks_no_word(narrow: list[str], folder: Path) -> None:
    wide = on_terminal(COMMANDS[::-1], 400, folder)[::-1]  # `evaluate` last: it writes what `report` shows anew
    for command, short, long in zip(COMMANDS, narrow[1:], wide, strict=True):
        lines = plain_text(short).splitlines()
        assert max(map(len, lines)) <= 80, (command, max(lines, key=len))
        words, all_words = _words(plain_text(short)), _words(plain_text(long))
        assert words == all_words, (command, words ^ all_words)


def _words(text: str) -> set[str]:
    return set(re.sub(r"[─━│┃┏┓┗┛┡┩┢┪┳┻╇┼├┤└┘┴┬┌┐╋╈]", " ", text).split())
