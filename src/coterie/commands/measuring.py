"""The command that measures this machine: bench."""

from __future__ import annotations

from pathlib import Path

from .calling import print_json


def bench(quick: bool = False, only: str = "", output: str | None = None, json: bool = False) -> None:
    """Speed and memory on this machine, as ratios beside what they should be.

    Args:
        quick: a small network and few turns: under two minutes instead of a quarter of an hour.
        only: comma-separated sections: startup, steps, floor, reference, parts, growth.
        output: write the result to this JSON file too (-o).
        json: print JSON.
    """
    from ..bench.bench import bench as measure
    from ..bench.bench import show

    result = measure(quick, only, Path(output) if output else None)
    print_json(result) if json else show(result)
