"""Write a run directory: its options (config.yaml), records (metrics.jsonl), checkpoints and student."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from ..config.options import from_file, read_options
from ..config.recipe import Recipe
from ..errors import InputError, reason, warn
from ..files import REMEDY, lock_file, write
from ..methods import Method
from ..models.metadata import encode_weights
from ..trust import SIGNATURE, code_in, sign, trusting
from .aside import free_directory, free_file
from .checkpoints import Checkpoints
from .description import describe_predictor
from .identity import (
    State,
    changes,
    check_content,
    check_owner,
    check_records,
    new_id,
    read_records,
    restart_hint,
    run_id,
)
from .information import check_data, check_resolved, damaged_files, describing_files
from .reader import read_run
from .records import RUN, decode_record, digest_of, encode_record, first_damage
from .tracking import Tracker, import_tracker, open_tracker

LOCK = ".lock"
"""Held while a process trains in the directory."""


class RunDirectory:
    """The files of one training. A directory of the same recipe is continued, one of another recipe refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics_file = path / "metrics.jsonl"
        self.student = path / "student.safetensors"
        self.checkpoints = Checkpoints(path)
        self.recipe: Recipe | None = None
        self.tracker: Tracker | None = None
        self._lock: FileLock | None = None
        self.id, self.records = "", b""
        """The id of the run, and the content of metrics.jsonl: checkpoints vouch for what was written alone."""
        self._moves: dict[Path, Path] = {}
        self._files: dict[Path, str | bytes] = {}
        self._epoch = 0

    def open(self, recipe: Recipe, processes: int = 1, restart: bool = False) -> State | None:
        """Lock the directory and check that it is new or holds a run of this recipe; return the state to resume.

        No file is changed before `begin`, so that a run that is refused, here or because its state does not fit,
        stays as it is. No other process can open the directory before `close`. With `restart` all that it holds is
        moved beside it, and the training starts anew.
        """
        self._acquire(recipe)
        self.recipe, self.checkpoints.every = recipe, recipe.checkpoint_seconds
        state = None if restart else self._check_run(recipe)
        self._epoch = state["epoch"] if state else 0
        self.id = self.id or (state or {}).get(RUN) or new_id()
        self.records = self.records[: state["metrics"]] if state else b""
        # The configuration before the files that describe it: without it, they would not be looked at.
        self._files[self.metrics_file] = self.records
        self._files[self.config] = yaml.safe_dump(recipe.config, sort_keys=False)
        self._sign()
        if restart:
            self._move_all()
        else:
            self._move_damaged()
        self._files |= describing_files(self.path, recipe, processes, self.id, self._moves)
        return state

    def _acquire(self, recipe: Recipe) -> None:
        """Make the directory, if it is new, and lock it."""
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

    def _check_run(self, recipe: Recipe) -> State | None:
        """Refuse what is not a run of this recipe, or not complete; return the state to resume."""
        if self.config.is_file():
            self._check_config(recipe)
        check_data(self.path, recipe)
        check_resolved(self.path, recipe)
        self.id, self.records = run_id(self.path) or "", read_records(self.path)
        state = self.check_state(recipe)
        if state is None:
            self._check_unfinished()
        return state

    def check_state(self, recipe: Recipe | None = None) -> State | None:
        """Return the newest state of the run that can be continued, if it has any; else raise an InputError."""
        run, records = run_id(self.path), read_records(self.path)
        written = [read_options(self.config)] if self.config.is_file() else []
        configs = [recipe.config, *written] if recipe is not None else []

        def check(file: Path, state: State) -> None:
            check_owner(file, state, run, configs)
            check_content(state, recipe)
            check_records(state, records, run, recipe)

        return self.checkpoints.load(check)

    def _check_unfinished(self) -> None:
        """Refuse to train a finished run again because its checkpoints are gone; keep records of no use."""
        count = len(self.records.splitlines())
        if self.student.is_file() or (count > 1 and read_run(self.path).finished):
            raise InputError(
                f"{self.path} was trained to its end, and its checkpoints are gone: nothing is trained. To do it "
                f"once more, {restart_hint(self.path)}."
            )
        if count > 1:  # after the first one there always is a checkpoint
            self._moves[self.metrics_file] = kept = free_file(self.metrics_file)
            warn(f"{self.path} has no checkpoint: it is trained from the start; its records are kept in {kept}.")

    def _move_all(self) -> None:
        """Have all files moved, the configuration last: without it, a part of them would be no run."""
        target = free_directory(self.path)
        names = sorted(self.path.iterdir(), key=lambda file: (file == self.config, file.name))
        self._moves = {file: target / file.name for file in names if file.name != LOCK}

    def _move_damaged(self) -> None:
        """Have files moved that cannot be used, where the training can do without."""
        if (newest := self.checkpoints.unusable) is not None:
            self._moves[newest] = free_file(newest)  # the next save would put it in the place of the good one
        for file in damaged_files(self.path):
            self._moves[file] = kept = free_file(file)
            warn(f"{file} cannot be read: it is kept as {kept.name} and written anew.")

    def begin(self) -> None:
        """Write the files that `open` prepared."""
        assert self.recipe is not None
        for file, target in self._moves.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, target)  # also where the directory is a file system of its own
        for file, content in self._files.items():
            write(file, content)
        self._moves, self._files = {}, {}
        self.tracker = open_tracker(self.recipe.track, self.path, self.recipe.config, self._epoch)

    def close(self) -> None:
        """Close the tracker and release the lock."""
        if self.tracker is not None:
            self.tracker.close()
        if self._lock is not None:
            self._lock.release()

    def metrics(self) -> list[dict[str, Any]]:
        """Return one record per evaluation, which is one per epoch unless the recipe says otherwise."""
        if not self.metrics_file.is_file():
            raise InputError(f"{self.path} is not a run directory: it has no {self.metrics_file.name}.")
        content = read_records(self.path)
        if damage := first_damage(content, run_id(self.path)):
            raise InputError(
                f"In {self.path} {damage}: its `coterie train` continues from before that line, or says why not."
            )
        return [decode_record(line)[0] for line in content.splitlines()]

    def log(self, record: dict[str, Any]) -> None:
        """Add a record. The file is replaced, not appended to, so that no reader sees half a line."""
        self.records += encode_record(record, self.id)
        write(self.metrics_file, self.records)
        if self.tracker is not None:
            self.tracker.log(record)

    def save(self, state: State) -> None:
        """Save a state with its run, and with length and digest of the records: no epoch is logged twice."""
        assert self.recipe is not None
        records = {"metrics": len(self.records), "records": digest_of(self.records)}
        self.checkpoints.save({**state, **records, RUN: self.id, "config": self.recipe.config})

    def restore(self, method: Method) -> int:
        """Load the weights last saved, or those selected so far; return the epochs that they were trained."""
        run = run_id(self.path)

        def check(file: Path, state: State) -> None:
            check_owner(file, state, run)
            check_content(state)

        state = self.checkpoints.load(check)
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
        try:
            written = read_options(self.config)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}{REMEDY}") from None
        if code := set(code_in(written)) - set(code_in(recipe.config)):
            raise InputError(
                f"{self.path} holds a run of another configuration (it names {', '.join(sorted(code))}): choose "
                "another `out`."
            )
        # Parsed again, so that an option which is newer than the run has its default.
        with trusting():  # its code is named by these options too
            stored = from_file(self.config, recipe.objects).config
        stored |= {name: written.get(name) for name in recipe.objects}  # as labels: the objects are this call's
        if different := changes(stored, recipe.config):
            raise InputError(
                f"{self.path} holds a run of another configuration ({'; '.join(different)}): "
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
