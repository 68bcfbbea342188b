"""Section `startup`: seconds until a command answers, in real processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import Failure
from .size import Size
from .timing import once, quartiles

TURNS = 3

# The real command, up to the end of its first step.
FIRST_STEP = """
import os, sys
from coterie.cli import main as cli
from coterie.training import progress
progress.ProgressReporter.step = lambda *_: os._exit(0)
cli.main(sys.argv[1:])
sys.exit("no step was taken")
"""


def measure(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        train = ["train", "--data", "digits", "--model", "resnet8", "--out"]
        commands = {
            "coterie --help": lambda turn: ["-m", "coterie", "--help"],
            "coterie train, to its first step": lambda turn: ["-c", FIRST_STEP, *train, f"{folder}/{turn}"],
        }
        return {name: _repeated(command) for name, command in commands.items()}


def _repeated(command: Any) -> dict[str, Any]:
    seconds = [once(partial(_run, command(turn))) for turn in range(TURNS)]
    return {"seconds": statistics.median(seconds), "quartiles": list(quartiles(seconds)), "turns": TURNS}


def _run(arguments: list[str]) -> None:
    python(arguments)


def python(arguments: list[str], **environment: str) -> str:
    """What a Python process that must succeed writes to its standard output; it finds this very package."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    if done.returncode:
        raise Failure(f"{' '.join(arguments)} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout
