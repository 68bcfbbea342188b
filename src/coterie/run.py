"""A run directory: what was asked (config.yaml), what happened (metrics.jsonl), and what came of it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file

from . import __version__
from .errors import InputError
from .methods import Method
from .recipe import Recipe, from_file


class Run:
    """The files of one training. Opening a directory of the same recipe continues it; of another, refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics_file = path / "config.yaml", path / "metrics.jsonl"
        self.checkpoint, self.student = path / "checkpoint.pt", path / "student.safetensors"

    def open(self, recipe: Recipe) -> None:
        """Make the directory, or check that it holds a run of this recipe; touches nothing otherwise."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: --out must name a directory.")
        if self.config.is_file():
            stored = yaml.safe_load(self.config.read_text())
            changes = [
                f"{key} was {_show(was)}, is {_show(now)}" for key, was, now in _differences(stored, recipe.config)
            ]
            if changes:
                raise InputError(
                    f"{self.path} holds a run of another configuration ({'; '.join(changes)}): "
                    "choose another --out, or repeat its own options to continue it."
                )
            return
        if self.path.is_dir() and any(self.path.iterdir()):
            raise InputError(f"{self.path} is not empty and holds no run: choose another --out.")
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / "environment.json", json.dumps(environment(recipe.seed), indent=2) + "\n")
        write(self.config, yaml.safe_dump(recipe.config, sort_keys=False))

    def metrics(self) -> list[dict[str, Any]]:
        """One record per finished epoch."""
        if not self.metrics_file.is_file():
            raise InputError(f"{self.path} is not a run directory: it has no {self.metrics_file.name}.")
        return [json.loads(line) for line in self.metrics_file.read_text().splitlines()]

    def log(self, record: dict[str, Any]) -> None:
        with self.metrics_file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def save(self, epoch: int, method: Method, optimizer: torch.optim.Optimizer) -> None:
        """After an epoch: all that is needed to go on as if nothing had happened."""
        state = {
            "epoch": epoch,
            "method": method.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.checkpoint)

    def restore(self, method: Method, optimizer: torch.optim.Optimizer | None = None) -> int:
        """Load the checkpoint, if there is one; returns the number of finished epochs."""
        if not self.checkpoint.is_file():
            return 0
        state = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
        method.load_state_dict(state["method"])
        if optimizer is not None:
            optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["random"])
            lines = self.metrics_file.read_text().splitlines(keepends=True)[: state["epoch"]]
            write(self.metrics_file, "".join(lines))  # an epoch logged but not saved will be logged again
        return int(state["epoch"])

    def finish(self, method: Method) -> None:
        """Write the deployable network's weights."""
        part = self.student.with_suffix(".part")
        weights = {k: v.detach().contiguous().cpu() for k, v in method.deploy().state_dict().items()}
        save_file(weights, part)
        part.replace(self.student)


def restored(directory: Path) -> tuple[Recipe, Method, int]:
    """A trained run's recipe with its data loaded, its method with the trained weights, its finished epochs."""
    recipe = from_file(directory / "config.yaml")
    method = recipe.build()
    epochs = Run(directory).restore(method)
    if epochs == 0:
        raise InputError(f"{directory} holds no checkpoint yet: train it first.")
    return recipe, method, epochs


def write(file: Path, text: str) -> None:
    """Replace a file in one step."""
    part = file.with_suffix(file.suffix + ".part")
    part.write_text(text)
    part.replace(file)


def environment(seed: int) -> dict[str, Any]:
    """What a number needs beside it: versions, machine, code, seed, command."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["coterie", *sys.argv[1:]]),
        "seed": seed,
        "coterie": __version__,
        "commit": git.stdout.strip() or None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _differences(was: Any, now: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        return [
            change
            for name in {**was, **now}
            for change in _differences(was.get(name), now.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if was == now else [(key.replace(".init_args", "").removesuffix(".class_path"), was, now)]


def _show(value: Any) -> str:
    return "unset" if value is None else str(value)
