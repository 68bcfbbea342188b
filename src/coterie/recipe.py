"""Recipe: everything that determines a run, from flags and YAML to the objects it builds."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser, Namespace
from torch.optim import SGD, Optimizer

from . import data as data_sets
from . import methods, models
from .arguments import parse_object
from .data import Data
from .errors import InputError
from .methods import Method
from .methods.pcl import PCL
from .peers import PeerNet
from .schedule import Schedule, Steps

# Imported so that the command line knows every method and data set by its short name.
METHODS, DATA_SETS = methods.available(), data_sets.available()


@dataclass
class Recipe:
    """A run: who trains what on which data, and for how long. Its schedule is stated in fractions.

    Args:
        method: how the peers train each other; see `coterie methods`.
        model: the network; see `coterie models`.
        data: the data set.
        peers: how many peers; methods that train a single network have one.
        cut: the module where the branches begin, or 'none' for whole networks; by default the network's own.
        epochs: passes over the training images.
        batch: images per step.
        optimizer: any torch optimiser.
        schedule: the learning rate's course.
        warmup: fraction of the training with a linearly rising learning rate.
        ramp_up: fraction of the training over which distillation weights rise (80 of 300 epochs); a method's
            own `ramp_up`, in epochs, overrides it.
        ema_horizon: fraction of the training that weight averages look back (1,000 of 117,300 steps); a
            method's own `beta` overrides it.
        ema: keep and report averaged weights for any method.
        model_options: further options of the network.
        seed: of weights, order and augmentation.
        device: where to train; 'auto' takes a GPU if there is one.
    """

    method: Callable[[PeerNet], Method] = PCL
    model: str = "resnet32"
    data: Data = field(default_factory=DATA_SETS["digits"])
    peers: int = 3
    cut: str | None = None
    epochs: int = 300
    batch: int = 128
    optimizer: Callable[[Iterable[Any]], Optimizer] = SGD
    schedule: Schedule = field(default_factory=Steps)
    warmup: float = 0.0
    ramp_up: float = 80 / 300
    ema_horizon: float = 1000 / 117300
    ema: bool = False
    model_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.method_class: type[Method] = PCL
        self.method_given: set[str] = set()
        for name in ("epochs", "batch", "peers"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("warmup", "ramp_up", "ema_horizon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    f"--{name} is a fraction of the training, from 0 to 1, not {getattr(self, name)}."
                )

    @property
    def steps_per_epoch(self) -> int:
        return len(batches(self.data.train_size, self.batch))

    def build(self) -> Method:
        """Load the data and make the method with its peers; what depended on the data is now in `config`."""
        self.data.load()
        if self.batch > self.data.train_size:
            raise InputError(
                f"A batch of {self.batch} is larger than the {self.data.train_size} training images: "
                "lower --batch."
            )
        torch.manual_seed(self.seed)
        channels = self.data.shape[0]
        make = models.factory(self.model, len(self.data.classes), channels, self.model_options)
        net = PeerNet(make, self._peer_count(), self._cut(make()), example=torch.randn(2, *self.data.shape))
        steps = self.epochs * self.steps_per_epoch
        beta = 1.0 - 1.0 / max(1.0, self.ema_horizon * steps)
        scaled = {"ramp_up": self.ramp_up * self.epochs, "beta": beta}
        accepted = inspect.signature(self.method_class).parameters
        scaled = {k: v for k, v in scaled.items() if k in accepted and k not in self.method_given}
        method = self.method(net, **scaled)
        if self.config:
            self.config["method"].setdefault("init_args", {}).update(scaled)
        if self.ema and method.mean is None:
            method.keep_mean(beta)
        return method

    def torch_device(self) -> torch.device:
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(automatic if self.device == "auto" else self.device)

    def _peer_count(self) -> int:
        return 1 if self.method_class.trains == "one network" else self.peers

    def _cut(self, model: torch.nn.Module) -> str | None:
        if self.cut == "none" or self.method_class.trains != "branches":
            return None
        cut = self.cut or getattr(model, "default_cut", None)
        if cut is None:
            raise InputError(f"{self.model} has no default cut: name one with --cut.")
        return str(cut)


def batches(size: int, batch: int) -> list[slice]:
    """An epoch as slices; a last image alone joins the batch before it, for batch-norm needs two."""
    starts = list(range(0, size, batch))
    if len(starts) > 1 and size - starts[-1] == 1:
        starts.pop()
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], size], strict=True)]


DEFAULTS = {
    "data": {"class_path": "digits"},
    "optimizer": {
        "class_path": "torch.optim.SGD",
        "init_args": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    },
    "schedule": {"class_path": "Steps"},
}


def parser(prog: str = "coterie train") -> ArgumentParser:
    """The options of a recipe, read from its signature and those of methods, data sets and optimisers."""
    made = ArgumentParser(prog=prog, exit_on_error=False, description=(Recipe.__doc__ or "").split("\n")[0])
    made.add_argument("--config", action="config", help="YAML file of options; flags after it override it.")
    made.add_class_arguments(Recipe, None)
    made.set_defaults(DEFAULTS)
    return made


def from_namespace(made: ArgumentParser, config: Namespace, given: Namespace) -> Recipe:
    """The recipe of parsed options; `given` are those that were not left to their defaults."""
    names = [f.name for f in fields(Recipe)]
    objects = made.instantiate(config)
    recipe = Recipe(**{name: objects[name] for name in names})
    plain = yaml.safe_load(made.dump(config, skip_validation=True))
    recipe.config = {name: plain.get(name) for name in names}
    module, _, name = config.method.class_path.rpartition(".")
    recipe.method_class = getattr(importlib.import_module(module), name)
    recipe.method_given = set(vars(given.get("method.init_args") or Namespace()))
    return recipe


def from_options(options: dict[str, Any]) -> Recipe:
    """A recipe of plain values, as a YAML file holds them: {'method': 'PCL', 'epochs': 30, ...}."""
    made = parser()
    return from_namespace(made, parse_object(made, options), parse_object(made, options, defaults=False))


def from_file(file: Path) -> Recipe:
    """The recipe that a run directory's config.yaml holds."""
    try:
        return from_options(yaml.safe_load(file.read_text()))
    except OSError:
        raise InputError(f"{file.parent} is not a run directory: it has no {file.name}.") from None
