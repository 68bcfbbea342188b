"""Recipe: all options of a training, and the objects that are built from them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal

import torch
from torch.optim import SGD, Optimizer, SparseAdam
from torch.optim.lr_scheduler import LRScheduler

from .. import methods
from ..data import data_sets
from ..data.device import best_device
from ..data.mix import Mix
from ..data.sampler import EpochSampler
from ..data.wrapped import AnyData
from ..errors import InputError
from ..methods import Method
from ..methods.pcl import PCL
from ..methods.trial import peers_stay_identical
from ..models.metadata import MOST_PEERS
from ..peers.net import PeerNet
from .fused import prefer_fused
from .loss import check_mixing, set_loss
from .peers import build_peers
from .schedule import Schedule, Steps
from .selection import check_held_out, check_patience
from .specs import own_defaults, to_spec

# Imported so that the command line knows every method and data set by its short name.
METHODS, DATA_SETS = methods.available(), data_sets()

DEFAULT_DATA = "digits"
MOST_EPOCHS = 10_000_000
PrecisionName = Literal["32", "bf16", "fp16", "auto"]
TrackerName = Literal["tensorboard", "wandb"]

RUNTIME_OPTIONS = {"device", "compile", "accumulate", "checkpoint_every", "track", "data.root", "data.workers"}
"""Options that say how and where a run is computed, not what: they may change when it is continued."""


@dataclass
class Recipe:
    """All options of a training; its schedule is stated in fractions of its length.

    Args:
        method: the distillation method; see `coterie methods`.
        model: the network; see `coterie models`.
        data: the data set, or the path of a folder or table of images.
        task: single_label, multi_label (an image may have any number of labels), or auto, which follows the data.
        peers: number of peers; methods that train a single network have one. For whole networks also the names
            of their models, 'resnet32,resnet20', in place of `model`; the first one is deployed.
        cut: the module where the branches begin, or 'none' for whole networks; by default the
            network's `default_cut`, or the one that `coterie cuts` marks.
        epochs: passes over the training images.
        evaluate_every: epochs between evaluations; each evaluation writes a record.
        batch: images per step, in all processes together.
        optimizer: any torch optimiser.
        schedule: how the learning rate changes: Steps, Cosine, or any torch scheduler, stepped per epoch.
        warmup: fraction of the training in which the learning rate rises linearly.
        mix: mix pairs of images: CutMix or MixUp.
        label_smoothing: the part of each target that is spread evenly over all classes.
        class_weights: class weights of the cross-entropy: 'balanced' (n / (C n_c)), a list, or a file of numbers.
        ramp_up: fraction of the training over which distillation weights rise (80 of 300 epochs); a method's
            own `ramp_up`, in epochs, overrides it.
        ema_horizon: how far weight averages look back, as a fraction of the training (1,000 of 117,300 steps); a
            method's own `beta` overrides it.
        ema: keep and report averaged weights for any method.
        model_options: further options of the network.
        init: a safetensors file or state dict (.pth, .pt) with the initial weights of every peer, for
            fine-tuning; layers for other classes are initialised anew.
        branch_noise: start all peers from the same weights and add noise to all branches but the first, in
            standard deviations of each weight tensor.
        checkpoint_activations: recompute the trunk in the backward pass, to save memory.
        seed: the random seed of weights, order and augmentation; also of the images, where the data set's
            `limit_seed` is 'seed'.
        device: the device to train on; 'auto' uses a GPU if there is one.
        precision: the precision of the forward pass; weights stay float32. 'auto' is bf16 on CUDA GPUs that
            support it, else 32.
        compile: run the peers as one graph of torch.compile; 'reduce-overhead' also records CUDA graphs, for small
            networks on a GPU.
        accumulate: compute each batch in this many parts, to save memory.
        clip_norm: clip the norm of all gradients together to this value.
        decay_norm_and_bias: apply weight decay to biases and normalisation layers too, as the paper does.
        sync_batch_norm: compute batch-norm over the batches of all processes; needs GPUs.
        select: deploy the weights of the last epoch, or the best: those of the evaluation with the lowest error on
            held-out images.
        patience: with `select` best, stop after this many evaluations in a row without a lower error.
        checkpoint_every: save within an epoch after this time, such as 30s, 10min or 1h. The end of an epoch is
            also saved, as long as that costs under one per cent of the time.
        track: also send the records to this tracker.
        config: the options as config.yaml holds them.
        objects: the options that are Python objects which no file can hold, by name; for `model`, the field of
            that name holds the label.
    """

    method: Callable[[PeerNet], Method] = PCL
    model: str = "resnet32"
    data: AnyData = field(default_factory=DATA_SETS[DEFAULT_DATA])
    task: Literal["auto", "single_label", "multi_label"] = "auto"
    peers: int | str = 3
    cut: str | None = None
    epochs: int = 300
    evaluate_every: int = 1
    batch: int = 128
    optimizer: Callable[[Iterable[Any]], Optimizer] = field(
        default_factory=lambda: partial(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    )
    schedule: Schedule | Callable[[Optimizer], LRScheduler] = field(default_factory=Steps)
    warmup: float = 0.0
    mix: Mix | None = None
    label_smoothing: float = 0.0
    class_weights: list[float] | str | None = None
    ramp_up: float = 80 / 300
    ema_horizon: float = 1000 / 117300
    ema: bool = False
    model_options: dict[str, Any] = field(default_factory=dict)
    init: str | None = None
    branch_noise: float = 0.0
    checkpoint_activations: bool = False
    seed: int = 0
    device: str = "auto"
    precision: PrecisionName = "32"
    compile: bool | Literal["reduce-overhead"] = False
    accumulate: int = 1
    clip_norm: float | None = None
    decay_norm_and_bias: bool = True
    sync_batch_norm: bool = False
    select: Literal["last", "best"] = "last"
    patience: int | None = None
    checkpoint_every: str = "10min"
    track: TrackerName | None = None
    config: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.resolved: dict[str, Any] = {}
        """Values that `build` derived from fractions, words and files; recorded beside the options."""
        self.method_class, self.method_options = class_and_options(self.method)
        self.config = self.config or {
            field.name: to_spec(getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("config", "objects")
        }
        self.models = [self.model]
        if isinstance(self.peers, str):
            self.models = [name.strip() for name in self.peers.split(",")]
            self.model = self.config["model"] = self.models[0]
        counts = ["epochs", "evaluate_every", "batch", "accumulate"]
        for name in [*counts, "peers"] if isinstance(self.peers, int) else counts:
            if not isinstance(value := getattr(self, name), int) or value < 1:
                raise InputError(f"`{name}` must be at least 1, not {value}.")
        if isinstance(self.peers, int) and self.peers > MOST_PEERS:
            raise InputError(f"`peers` must be at most {MOST_PEERS}, not {self.peers:,}.")
        if self.epochs > MOST_EPOCHS:
            raise InputError(f"`epochs` must be at most {MOST_EPOCHS:,}, not {self.epochs:,}.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"`seed` must be from 0 to 2^63 - 1, not {self.seed}.")
        if not 0 <= self.branch_noise < math.inf:
            raise InputError(f"`branch_noise` must be a finite number from 0 on, not {self.branch_noise}.")
        for name in ("warmup", "ramp_up", "ema_horizon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(
                    f"`{name}` is a fraction of the training, from 0 to 1, not {getattr(self, name)}."
                )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise InputError(f"`clip_norm` must be greater than 0, not {self.clip_norm}.")
        if self.sync_batch_norm and self.accumulate > 1:
            raise InputError("`sync_batch_norm` looks at the whole batch at once: leave out `accumulate`.")
        check_patience(self.select, self.patience)
        self.checkpoint_seconds = read_duration("checkpoint_every", self.checkpoint_every)
        self.data.resolve_seed(self.seed)
        self.data.task = self.task

    @property
    def steps_per_epoch(self) -> int:
        return len(EpochSampler(self.data.train_size, self.batch))

    @property
    def several_labels(self) -> bool:
        """Whether the task is multi_label; the data must be loaded."""
        if self.data.several_labels and self.task == "single_label":
            raise InputError(f"{self.data.title} has several labels an image: leave out `task` single_label.")
        return self.data.several_labels or self.task == "multi_label"

    def build(self, fresh: bool = True) -> Method:
        """Load the data and build the method with its peers; set `resolved`.

        `fresh=False` loads no initial weights, for a method that is then restored from a checkpoint.
        """
        if not hasattr(self.data, "labels"):  # it may be loaded already
            self.data.load()
        several = self.several_labels
        if len(self.data.classes) < 2 and not several:
            raise InputError(
                f"{self.data.title} has one class alone, '{self.data.classes[0]}': it needs two to tell apart."
            )
        if self.batch > self.data.train_size:
            raise InputError(
                f"A batch of {self.batch} is larger than the {self.data.train_size} training images: "
                "lower `batch`."
            )
        if fresh:
            check_held_out(self.select, self.data)
        torch.manual_seed(self.seed)
        net = build_peers(self, fresh)
        steps = self.epochs * self.steps_per_epoch
        beta = 1.0 - 1.0 / max(1.0, self.ema_horizon * steps)
        options = self.method_options
        if not 0 < options.get("temperature", 1.0) < math.inf:
            raise InputError(f"`method.temperature` must be greater than 0, not {options['temperature']}.")
        if not 0 <= (options.get("ramp_up") or 0.0) < math.inf:
            raise InputError(f"`method.ramp_up` is a number of epochs, from 0 on, not {options['ramp_up']}.")
        scheduled = {"ramp_up": self.ramp_up * self.epochs, "beta": beta}
        scheduled = {name: value for name, value in scheduled.items() if name in options and options[name] is None}
        method = self.method(net, **scheduled)
        self.resolved = {f"method.{name}": value for name, value in scheduled.items()}
        check_mixing(self, method)
        if several or (fresh and (self.label_smoothing or self.class_weights is not None)):
            set_loss(self, method, fresh)
        if fresh and peers_stay_identical(method, self.data):
            raise InputError(
                f"Peers that start from the same weights and see the same views would stay equal: "
                f"{self.method_class.__name__} needs `branch_noise`, such as 0.05."
            )
        if self.ema and method.mean is None:
            own_beta = options.get("beta")
            method.keep_mean(beta if own_beta is None else own_beta)
        return method

    def build_optimizer(self, method: Method) -> Optimizer:
        """Build the optimiser of all trained parameters; on a GPU torch's fused one, if it has one."""
        trained = [p for p in method.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained}]
        if not self.decay_norm_and_bias:
            groups = [
                {"params": [p for p in trained if p.dim() > 1]},
                {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
            ]
        if isinstance(self.optimizer, Optimizer):
            raise InputError(
                "`optimizer` must be a name, a class or a function that is given the parameters, not an optimiser "
                f"that is made: give torch.optim.{type(self.optimizer).__name__}."
            )
        try:
            optimizer = self.optimizer([group for group in groups if group["params"]])
        except (TypeError, ValueError) as error:
            raise InputError(f"`optimizer`: {error}.") from None
        if not isinstance(optimizer, Optimizer):
            raise InputError(f"`optimizer` made a {type(optimizer).__name__}, not an optimiser of torch.")
        for name, value in optimizer.defaults.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"`optimizer.{name}` must be a finite number.")
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in held for p in trained):
            raise InputError("`optimizer` holds none of the method's parameters: build it over those it is given.")
        if isinstance(optimizer, SparseAdam):
            raise InputError("SparseAdam wants sparse gradients, which these networks do not have: take Adam.")
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise InputError(
                f"{type(optimizer).__name__} wants the loss more than once a step: take another `optimizer`."
            )
        return prefer_fused(optimizer, trained[0].device)

    def torch_device(self) -> torch.device:
        """Return the device to train on; refuse one that this machine does not have."""
        try:
            device = torch.device(best_device() if self.device == "auto" else self.device)
            count = torch.get_device_module(device).device_count()
        except (AttributeError, RuntimeError):
            count = 0
        if not count or (device.index or 0) >= count:
            raise InputError(f"There is no device '{self.device}' here: `device` auto takes what there is.")
        return device


def class_and_options(method: Callable[..., Method]) -> tuple[type[Method], dict[str, Any]]:
    """Return the class of a method, given as a class or a partial of one, and all of its options."""
    cls, options = (method.func, method.keywords) if isinstance(method, partial) else (method, {})
    if not isinstance(cls, type) or not issubclass(cls, Method):
        raise InputError("`method` must be a name, a class of methods, or a functools.partial of one.")
    if inspect.isabstract(cls):
        raise InputError(f"{cls.__name__} has no `forward`: name a method that is complete.")
    try:
        inspect.signature(cls).bind_partial(None, **options)
    except TypeError as error:
        raise InputError(f"`method`: {cls.__name__} {error}.") from None
    return cls, {**own_defaults(cls), **options}


def read_duration(option: str, duration: str) -> float:
    """Return the seconds of an option such as 30s, 10min or 1h."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", str(duration))
    if match is None:
        raise InputError(f"`{option}` is a time such as 30s, 10min or 1h, not '{duration}'.")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2]]
