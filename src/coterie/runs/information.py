"""The files that describe a run: what it was trained on, with which values, where; each is written once."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..config.recipe import Recipe
from ..data.inspection import contact_sheet
from ..errors import InputError
from ..files import read_json
from .description import describe_run
from .environment import environment
from .records import RUN


def check_data(directory: Path, recipe: Recipe, keys: Sequence[str] | None = None) -> None:
    """Refuse to continue with other data than the run began with; `keys` of its fingerprint, or all."""
    if (change := data_change(directory, recipe, keys)) is not None:
        raise InputError(f"{change}: put it back as it was, or choose another `out`.")


def data_change(directory: Path, recipe: Recipe, keys: Sequence[str] | None = None) -> str | None:
    """Say in what the data differs from that which the run began with; None if it is the same."""
    file = directory / "data.json"
    if not file.is_file():
        return None
    stored, current = read_json(file), json.loads(json.dumps(recipe.data.fingerprint()))
    for key in current if keys is None else keys:
        if stored.get(key, current[key]) != current[key]:  # a run of an earlier version has fewer
            return f"The data is not that of {file} any more (its {key} differ)"
    return None


def check_resolved(directory: Path, recipe: Recipe) -> None:
    """Refuse to continue with other resolved values, such as class weights of a changed file."""
    file = directory / "resolved.json"
    stored = read_json(file) if file.is_file() else {}
    for key, value in recipe.resolved.items():
        if stored.get(key, value) != value:
            raise InputError(
                f"{key} is not what it was when the run began (see {file}): use the files that it began with, or "
                "choose another `out`."
            )


def damaged_files(directory: Path) -> list[Path]:
    """Return the files that only inform and cannot be read: a training need not stop for them."""
    files = [directory / name for name in ("environment.json", "description.json")]
    return [file for file in files if file.is_file() and not _is_mapping(file)]


def describing_files(
    directory: Path, recipe: Recipe, processes: int, run: str, gone: Collection[Path]
) -> dict[Path, str | bytes]:
    """Return the content of the files that are missing or `gone`, and of environment.json with this process."""
    missing = {
        name: file
        for name in ("views.png", "data.json", "description.json", "resolved.json", "environment.json")
        if (file := directory / name) in gone or not file.is_file()
    }
    files: dict[Path, str | bytes] = {}
    if "views.png" in missing:
        sheet = io.BytesIO()
        contact_sheet(recipe.data, views=3, seed=recipe.seed, mix=recipe.mix).save(sheet, "PNG")
        files[missing["views.png"]] = sheet.getvalue()
    if "data.json" in missing:
        files[missing["data.json"]] = _as_json(recipe.data.fingerprint())
    if "description.json" in missing:
        files[missing["description.json"]] = _as_json(describe_run(recipe))
    if "resolved.json" in missing:
        files[missing["resolved.json"]] = _as_json(recipe.resolved)
    content = environment(recipe.seed, processes)
    if "environment.json" not in missing:
        first = read_json(directory / "environment.json")
        continued = first.get("continued")
        content = {**first, "continued": [*(continued if isinstance(continued, list) else []), content]}
    files[directory / "environment.json"] = _as_json({**content, RUN: run})
    return files


def _is_mapping(file: Path) -> bool:
    try:
        read_json(file)
    except InputError:
        return False
    return True


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"
