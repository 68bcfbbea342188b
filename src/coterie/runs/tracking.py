"""Send the records of metrics.jsonl to a tracker as they are written."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ..config.recipe import TrackerName
from ..errors import InputError


class Tracker(Protocol):
    """A service that shows the records of a run."""

    def log(self, record: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `tensorboard/`; epochs trained again after a crash replace the old ones."""

    def __init__(self, directory: Path, config: dict[str, Any], epoch: int) -> None:
        writer = import_tracker("tensorboard").SummaryWriter
        self.writer = writer(str(directory / "tensorboard"), purge_step=epoch)

    def log(self, record: dict[str, Any]) -> None:
        for name, value in flatten(record):
            self.writer.add_scalar(name, value, record["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases; a continued run stays one run."""

    def __init__(self, directory: Path, config: dict[str, Any], epoch: int) -> None:
        wandb = import_tracker("wandb")
        name = directory.resolve().name
        identity = directory / "wandb.id"
        if not identity.is_file():
            identity.write_text(secrets.token_hex(8), encoding="utf-8")
        self.run = wandb.init(
            dir=str(directory),
            id=identity.read_text(encoding="utf-8"),
            name=name,
            config=config,
            resume="allow",
            project="coterie",
        )

    def log(self, record: dict[str, Any]) -> None:
        self.run.log(dict(flatten(record)), step=record["epoch"])

    def close(self) -> None:
        self.run.finish()


def open_tracker(name: TrackerName | None, directory: Path, config: dict[str, Any], epoch: int) -> Tracker | None:
    """Return the tracker of this name, to log from this epoch on."""
    if name is None:
        return None
    tracker = TensorBoard if name == "tensorboard" else WandB
    return tracker(directory, config, epoch)


def flatten(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of a record with its path: `predictors/mean1/error`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def import_tracker(name: TrackerName) -> Any:
    """Import the module of a tracker."""
    try:
        return importlib.import_module({"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}[name])
    except ImportError:
        raise InputError(f"`track` {name} needs the package {name}: pip install {name}.") from None
