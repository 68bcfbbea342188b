"""Call a command: its options are its signature, its help is its docstring."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def call(name: str, command: Callable[..., None], arguments: list[str]) -> None:
    """Run a command with arguments of the command line."""
    from jsonargparse import ArgumentParser

    from ..config.parsing import add_command, instantiate, parse

    parser = ArgumentParser(
        prog=f"coterie {name}", exit_on_error=False, allow_abbrev=False, description=summary(command)
    )
    add_command(parser, command)
    config = parse(parser, arguments)
    command(**vars(instantiate(parser, config)))


def summary(command: Callable[..., None]) -> str:
    """Return the first line of a command's docstring."""
    return (command.__doc__ or "").strip().splitlines()[0]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
