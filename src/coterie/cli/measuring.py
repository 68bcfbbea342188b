"""The command that measures this machine: bench."""

from __future__ import annotations

from pathlib import Path

from .calling import print_json


def bench(quick: bool = False, only: str = "", output: str | None = None, json: bool = False) -> None:
    """Speed and memory on this machine, as ratios beside what they should be.

    Args:
        quick: a small network and few turns: under two minutes instead of half an hour.
        only: comma-separated sections: startup, steps, floor, reference, parts, growth.
        output: write the result to this JSON file too (-o).
        json: print JSON.
    """
    from ..bench import bench as measuring

    file = Path(output) if output else None
    if file is not None:
        measuring.check(file)
    result = measuring.bench(quick, only)
    try:
        if file is not None:
            measuring.save(result, file)
    finally:  # a disk that is full by now loses nothing
        print_json(result) if json else measuring.show(result)
