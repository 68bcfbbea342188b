"""Write a run directory: its options (config.yaml), records (metrics.jsonl), checkpoints and student."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from ..config.options import from_file, read_options
from ..config.recipe import RUNTIME_OPTIONS, Recipe
from ..data.inspection import contact_sheet
from ..errors import InputError, reason, warn
from ..files import lock_file, read_json, write
from ..methods import Method
from ..models.metadata import encode_weights
from ..trust import SIGNATURE, code_in, sign, trusting
from .checkpoints import Checkpoints
from .description import describe_predictor, describe_run
from .environment import environment
from .tracking import Tracker, import_tracker, open_tracker

LOCK = ".lock"
"""Held while a process trains in the directory."""


class RunDirectory:
    """The files of one training. A directory of the same recipe is continued, one of another recipe refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.resolved = path / "config.yaml", path / "resolved.json"
        self.metrics_file = path / "metrics.jsonl"
        self.environment, self.student = path / "environment.json", path / "student.safetensors"
        self.checkpoints = Checkpoints(path)
        self.recipe: Recipe | None = None
        self.tracker: Tracker | None = None
        self._lock: FileLock | None = None
        self._files: dict[Path, str | bytes] = {}
        self._epoch = 0

    def open(self, recipe: Recipe, processes: int = 1) -> dict[str, Any] | None:
        """Lock the directory and check that it is new or holds a run of this recipe; return the state to resume.

        No file is changed before `begin`, so that a run that is refused, here or because its state does not fit,
        stays as it is. No other process can open the directory before `close`.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: `out` must name a directory.")
        if recipe.track is not None:
            import_tracker(recipe.track)  # fail before a directory is made
        lock = self.path / LOCK
        if self.path.is_dir() and not self.config.is_file() and not lock.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} is not empty and holds no run: choose another `out`.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}): choose another `out`.") from None
        try:
            self._lock = lock_file(lock)
            self._lock.acquire()
        except Timeout:
            raise InputError(f"Another process is training in {self.path}: choose another `out`.") from None
        except OSError as error:
            warn(f"{self.path} cannot be locked ({error.strerror}): see to it that no other process trains in it.")
        self.recipe, self.checkpoints.every = recipe, recipe.checkpoint_seconds
        if self.config.is_file():
            self._check_config(recipe)
            self.check_data(recipe)
        else:
            sheet = io.BytesIO()
            contact_sheet(recipe.data, views=3, seed=recipe.seed, mix=recipe.mix).save(sheet, "PNG")
            self._files[self.path / "views.png"] = sheet.getvalue()
            self._files[self.path / "data.json"] = json.dumps(recipe.data.fingerprint(), indent=2) + "\n"
        description = self.path / "description.json"
        if not description.is_file():
            self._files[description] = json.dumps(describe_run(recipe), indent=2) + "\n"
        state = self.checkpoints.load()
        self._epoch = state["epoch"] if state else 0
        self._files[self.config] = yaml.safe_dump(recipe.config, sort_keys=False)
        self._sign()
        self._check_resolved(recipe)
        self._files[self.environment] = self._environments(recipe.seed, processes)
        self._files[self.metrics_file] = self._saved_metrics(state["metrics"] if state else 0)
        return state

    def begin(self) -> None:
        """Write the files that `open` prepared."""
        assert self.recipe is not None
        for file, content in self._files.items():
            write(file, content)
        self._files = {}
        self.tracker = open_tracker(self.recipe.track, self.path, self.recipe.config, self._epoch)

    def close(self) -> None:
        """Close the tracker and release the lock."""
        if self.tracker is not None:
            self.tracker.close()
        if self._lock is not None:
            self._lock.release()

    def check_data(self, recipe: Recipe, keys: Sequence[str] | None = None) -> None:
        """Refuse to continue with other data than the run began with; `keys` of its fingerprint, or all."""
        file = self.path / "data.json"
        if not file.is_file():
            return
        stored, current = read_json(file), json.loads(json.dumps(recipe.data.fingerprint()))
        for key in current if keys is None else keys:
            if stored.get(key, current[key]) != current[key]:  # a run of an earlier version has fewer
                raise InputError(
                    f"The data is not that of {file} any more (its {key} differ): put it back as it was, or "
                    "choose another `out`."
                )

    def metrics(self) -> list[dict[str, Any]]:
        """Return one record per evaluation, which is one per epoch unless the recipe says otherwise."""
        if not self.metrics_file.is_file():
            raise InputError(f"{self.path} is not a run directory: it has no {self.metrics_file.name}.")
        try:
            return [json.loads(line) for line in self.metrics_file.read_text(encoding="utf-8").splitlines()]
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.metrics_file} cannot be read ({reason(error)}): restore it.") from None

    def log(self, record: dict[str, Any]) -> None:
        """Add a record. The file is replaced, not appended to, so that no reader sees half a line."""
        write(self.metrics_file, self.metrics_file.read_bytes() + json.dumps(record).encode() + b"\n")
        if self.tracker is not None:
            self.tracker.log(record)

    def save(self, state: dict[str, Any]) -> None:
        """Save a state with the length of the metrics file, so that no epoch is logged twice."""
        assert self.recipe is not None
        metrics = self.metrics_file.stat().st_size
        self.checkpoints.save({**state, "metrics": metrics, "config": self.recipe.config})

    def restore(self, method: Method) -> int:
        """Load the weights last saved, or those selected so far; return the epochs that they were trained."""
        state = self.checkpoints.load()
        if state is None:
            raise InputError(f"{self.path} holds no checkpoint yet: train it first.")
        weights, epochs = state["method"], state["epoch"]
        if (selected := state.get("selected")) and selected["epochs"]:
            weights, epochs, method.selected = selected["method"], selected["epochs"], selected["predictor"]
        try:
            method.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(
                f"The checkpoint in {self.path} does not fit this code's network: {reason(error)}"
            ) from error
        return int(epochs)

    def finish(self, method: Method, epochs: int) -> None:
        """Write the network to deploy, of so many epochs, with the metadata that `coterie predict` needs."""
        assert self.recipe is not None
        metadata = describe_predictor(self.recipe, method, method.deployed, epochs)
        write(self.student, encode_weights(method.deploy().state_dict(), metadata))

    def _check_config(self, recipe: Recipe) -> None:
        """Refuse to continue with other options than the run began with."""
        written = read_options(self.config)
        if code := set(code_in(written)) - set(code_in(recipe.config)):
            raise InputError(
                f"{self.path} holds a run of another configuration (it names {', '.join(sorted(code))}): choose "
                "another `out`."
            )
        # Parsed again, so that an option which is newer than the run has its default.
        with trusting():  # its code is named by these options too
            stored = from_file(self.config, recipe.objects).config
        stored |= {name: written.get(name) for name in recipe.objects}  # as labels: the objects are this call's
        changes = [
            f"{key} was {_show(old)}, is {_show(new)}"
            for key, old, new in _differences(stored, recipe.config)
            if key not in RUNTIME_OPTIONS
        ]
        if changes:
            raise InputError(
                f"{self.path} holds a run of another configuration ({'; '.join(changes)}): "
                "choose another `out`, or repeat its own options to continue it."
            )

    def _sign(self) -> None:
        """Sign a run that names code of the user's own, so that its user can read it without `trust`."""
        config = yaml.safe_load(self._files[self.config])
        if not code_in(config):
            return
        signature = sign(config)
        if signature is None:
            warn(f"{self.path} cannot be signed as your run (no key can be kept): to read it, add --trust.")
        else:
            self._files[self.path / SIGNATURE] = signature + "\n"

    def _check_resolved(self, recipe: Recipe) -> None:
        """Refuse to continue with other resolved values, such as class weights of a changed file."""
        if self.resolved.is_file():
            stored = read_json(self.resolved)
            changed = [key for key, value in recipe.resolved.items() if stored.get(key, value) != value]
            if changed:
                raise InputError(
                    f"{changed[0]} is not what it was when the run began ({self.resolved}): restore it."
                )
        else:
            self._files[self.resolved] = json.dumps(recipe.resolved, indent=2) + "\n"

    def _environments(self, seed: int, processes: int) -> str:
        """Return the environment of the run as JSON, with those of its continuations under `continued`."""
        content: dict[str, Any] = environment(seed, processes)
        if self.environment.is_file():
            first = read_json(self.environment)
            content = {**first, "continued": [*first.get("continued", []), content]}
        return json.dumps(content, indent=2) + "\n"

    def _saved_metrics(self, length: int) -> bytes:
        """Return the records up to the checkpoint; later ones will be logged again."""
        records = self.metrics_file.read_bytes() if self.metrics_file.is_file() else b""
        if len(records) < length:
            raise InputError(f"{self.metrics_file} is shorter than when the checkpoint was written: restore it.")
        return records[:length]


def in_training(directory: Path) -> bool:
    """Tell whether a process is training in a run directory."""
    if not (directory / LOCK).exists():
        return False
    try:
        with lock_file(directory / LOCK):
            return False
    except Timeout:
        return True
    except OSError:  # a file system without locks, of which training has warned
        return False


def _differences(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    """List the options that differ, each with its old and new value."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for name in {**old, **new}
            for change in _differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if old == new else [(key.replace(".init_args", "").removesuffix(".class_path"), old, new)]


def _show(value: Any) -> str:
    return "unset" if value is None else str(value)
