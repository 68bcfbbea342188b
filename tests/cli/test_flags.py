"""A message of the library, shown on the command line with flags."""

from __future__ import annotations

import pytest

from coterie.cli.flags import with_flags
from coterie.cli.main import COMMANDS
from coterie.data.cifar import cifar10
from coterie.errors import InputError
from tests.helpers.common import coterie


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("train", "`epochs` must be at least 1.", "--epochs must be at least 1."),
        ("train", "`limit` of `data.limit`", "--data.limit of --data.limit"),
        ("train", "`probability`, `out`, `method.weight`", "--mix.probability, --out, --method.weight"),
        ("train", "`ramp_up` of a recipe wins", "--ramp_up of a recipe wins"),
        ("train", "set `clip_norm`, or use `precision` 32", "set --clip_norm, or use --precision 32"),
        ("demo", "choose another `out`, fewer `peers`", "choose another --out, fewer `peers`"),
        ("evaluate", "lower `workers`, not `epochs`", "lower --data.workers, not `epochs`"),
        ("data", "`limit` and `sheet`", "--limit and --sheet"),
        ("export", "`run` is a word, `size` an option", "`run` is a word, --size an option"),
        ("export", "`coterie export --size 8`", "`coterie export --size 8`"),
    ],
)
def test_names_in_backticks_become_the_flags_of_the_command(command: str, message: str, shown: str) -> None:
    assert with_flags(message, command, COMMANDS[command]) == shown


def test_the_library_speaks_python_and_the_command_line_in_flags() -> None:
    with pytest.raises(InputError, match=r"^`limit` must be at least 1 image per class, not 0\.$"):
        cifar10(limit=0)
    result = coterie("train", "--data", "cifar10", "--data.limit", "0", "--out", "x")
    assert result.returncode == 2
    assert result.stderr == "coterie: --data.limit must be at least 1 image per class, not 0.\n"
