"""The records of metrics.jsonl, sent on to a tracker as they are written."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ..config.recipe import TrackerName
from ..errors import InputError


class Tracker(Protocol):
    def log(self, record: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `tensorboard/`; epochs trained again after a crash replace what was there."""

    def __init__(self, directory: Path, config: dict[str, Any], epoch: int) -> None:
        writer = need("tensorboard").SummaryWriter
        self.writer = writer(str(directory / "tensorboard"), purge_step=epoch)

    def log(self, record: dict[str, Any]) -> None:
        for name, value in flat(record):
            self.writer.add_scalar(name, value, record["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases; a continued run stays one run."""

    def __init__(self, directory: Path, config: dict[str, Any], epoch: int) -> None:
        wandb = need("wandb")
        name = directory.resolve().name
        identity = directory / "wandb.id"
        if not identity.is_file():
            identity.write_text(secrets.token_hex(8))
        self.run = wandb.init(
            dir=str(directory),
            id=identity.read_text(),
            name=name,
            config=config,
            resume="allow",
            project="coterie",
        )

    def log(self, record: dict[str, Any]) -> None:
        self.run.log(dict(flat(record)), step=record["epoch"])

    def close(self) -> None:
        self.run.finish()


def tracker(name: TrackerName | None, directory: Path, config: dict[str, Any], epoch: int) -> Tracker | None:
    """The tracker of this name, ready for this epoch and those after it."""
    if name is None:
        return None
    make = TensorBoard if name == "tensorboard" else WandB
    return make(directory, config, epoch)


def flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record under its path: `predictors/mean1/error`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def need(name: TrackerName) -> Any:
    """The module that a tracker is fed through."""
    try:
        return importlib.import_module({"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}[name])
    except ImportError:
        raise InputError(f"`track` {name} needs the package {name}: pip install {name}.") from None
