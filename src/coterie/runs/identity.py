"""Whether options and checkpoints are those of a run: by its id, its configuration and its records."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config.recipe import RUNTIME_OPTIONS, Recipe
from ..errors import InputError
from ..files import load_json, read_bytes
from .aside import aside_directory
from .records import NAME, RUN, digest_of, due_epochs, first_damage, owner_of

State = dict[str, Any]
KINDS: dict[str, type] = {
    "epoch": int,
    "step": int,
    "metrics": int,
    "method": dict,
    "optimizer": dict,
    "rates": dict,
    "precision": dict,
    "meter": list,
    "versions": dict,
    "config": dict,
}
"""What a checkpoint holds at least."""


class Damaged(Exception):
    """A checkpoint has no content that a training could have saved."""


class MissingRecords(Exception):
    """A checkpoint is intact, but not the records that were there when it was saved."""


def new_id() -> str:
    """Return the id of a new run: 128 random bits."""
    return secrets.token_hex(16)


def run_id(directory: Path) -> str | None:
    """Return the id of a run, from environment.json or else its records; one of an earlier version has none."""
    try:
        content = load_json(directory / "environment.json")
    except (OSError, ValueError):
        content = None
    if isinstance(content, dict) and isinstance(content.get(RUN), str):
        return str(content[RUN])
    return owner_of(read_records(directory))


def read_records(directory: Path) -> bytes:
    """Return the content of metrics.jsonl; nothing if there is none."""
    file = directory / NAME
    try:
        return read_bytes(file) if file.is_file() else b""
    except ValueError as error:
        raise InputError(f"{file} cannot be read ({error}).") from None


def changes(old: Any, new: Any, common: bool = False) -> list[str]:
    """Say which options that decide the result differ; with `common`, of those that both have."""
    return [
        f"{key} was {_show(before)}, is {_show(after)}"
        for key, before, after in _differences(old, new, common)
        if key not in RUNTIME_OPTIONS
    ]


def check_owner(file: Path, state: Any, run: str | None, configs: Sequence[Mapping[str, Any]] = ()) -> None:
    """Raise an InputError if a checkpoint is of another run, by its id or its configuration.

    `configs` are those of the run, the first in today's words: of a run of an earlier version, config.yaml has
    the same options in the words of that version, and the checkpoint may lack newer ones.
    """
    if not isinstance(state, dict):
        return  # which `check_content` says
    owner, config = state.get(RUN), state.get("config")
    comparisons = [changes(config, other, common=True) for other in configs if isinstance(config, dict)]
    different = comparisons[0] if comparisons and all(comparisons) else []
    other_id = run is not None and owner is not None and owner != run
    if not (different or other_id):
        return
    reasons = "; ".join(different) or f"its run is {str(owner)[:8]}, this one {str(run)[:8]}"
    other = file.with_name("checkpoint.previous.pt")
    if file != other and other.exists():
        way = f"move it away, and the same command goes on from {other.name}"
    else:
        way = f"put this run's own in its place, or {restart_hint(file.parent)}"
    raise InputError(f"{file} belongs to another run ({reasons}): {way}.")


def check_content(state: Any, recipe: Recipe | None = None) -> None:
    """Raise Damaged if a checkpoint lacks something or has values that no training of the recipe could have."""
    if not isinstance(state, dict):
        raise Damaged("it holds no state of a training")
    selected: dict[str, type] = {"selected": dict} if recipe is not None and recipe.select == "best" else {}
    for key, kind in {**KINDS, **selected}.items():
        if key not in state:
            raise Damaged(f"it has no '{key}'")
        if not isinstance(state[key], kind) or isinstance(state[key], bool):
            raise Damaged(f"its '{key}' is of type {type(state[key]).__name__}, not {kind.__name__}")
    epoch, step, length = state["epoch"], state["step"], state["metrics"]
    for key in ("epoch", "step", "metrics"):
        if state[key] < 0:
            raise Damaged(f"its '{key}' is {state[key]}")
    if recipe is None:
        return
    per_epoch = recipe.steps_per_epoch
    if epoch > recipe.epochs:
        raise Damaged(f"its 'epoch' is {epoch}, of {recipe.epochs}")
    # Saved after the last step of an epoch, the epoch does not count yet.
    last = min(epoch + 1, recipe.epochs) * per_epoch
    if not epoch * per_epoch <= step <= last:
        raise Damaged(f"its 'step' is {step}, which is not in epoch {epoch + 1} of {per_epoch} steps each")
    if length == 0 and epoch >= recipe.evaluate_every:
        raise Damaged(f"its 'metrics' is 0 after {epoch} epochs")


def check_records(state: State, content: bytes, run: str | None, recipe: Recipe | None = None) -> None:
    """Raise MissingRecords, naming the line, unless metrics.jsonl begins with the records of the checkpoint."""
    length, digest = state["metrics"], state.get("records")
    records = content[:length]
    intact = digest == digest_of(records) if digest is not None else records.endswith(b"\n") or not records
    due = None if recipe is None else due_epochs(recipe.epochs, recipe.evaluate_every)
    if len(records) == length and intact and (digest is not None or not first_damage(records, run, due)):
        return
    damage = first_damage(content, run, due)
    if not damage and len(records) < length:
        count = content.count(b"\n")
        damage = f"{NAME} ends after {count} record{'' if count == 1 else 's'}"
    raise MissingRecords(damage or f"{NAME} has other records than were saved")


def restart_hint(directory: Path) -> str:
    """Say how to begin a run anew."""
    return f"add `restart` to train from the start (what is here is moved to {aside_directory(directory)})"


def _differences(old: Any, new: Any, common: bool, key: str = "") -> list[tuple[str, Any, Any]]:
    """List the options that differ, each with its old and new value."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in {**old, **new} if not common or (name in old and name in new)]
        return [
            change
            for name in names
            for change in _differences(old.get(name), new.get(name), common, f"{key}.{name}" if key else name)
        ]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        old, new = list(old), list(new)  # a YAML file has no tuples
    return [] if old == new else [(key.replace(".init_args", "").removesuffix(".class_path"), old, new)]


def _show(value: Any) -> str:
    return "unset" if value is None else str(value)
