"""The contract every method keeps, and what all of them have in common."""

from __future__ import annotations

import copy
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from textwrap import shorten
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..peers.ema import MeanPeers
from ..peers.net import PeerNet, Peers, own_code, standalone
from .cross_entropy import CrossEntropy
from .losses import check_terms
from .task import Task

Views = Sequence[Tensor]


class Method(nn.Module, ABC):
    """Base class of all methods: peers, and the losses that train them.

    A subclass defines `forward` and, if it has an ensemble, `ensemble`. The command line and YAML files read its
    options from the signature of `__init__`.
    """

    trains: ClassVar[Literal["one network", "branches", "networks"]] = "branches"
    """What its peers are: a single network, branches on a shared trunk, or whole networks."""

    least_peers: ClassVar[int] = 1

    couples_batch: ClassVar[bool] = False
    """Whether a term compares images of a batch with each other, so that a batch must not be cut up."""

    soft_targets: ClassVar[bool] = True
    """Whether targets may be probabilities: after mixing, for example."""

    one_graph: bool = False
    """Whether `forward` can be compiled as a whole: no value is read, `epoch` is used by `ramp_up` alone, and the
    peers do not run shared modules once for all."""

    def __init__(self, net: PeerNet) -> None:
        super().__init__()
        if not isinstance(net, PeerNet):
            raise InputError(
                f"{type(self).__name__} trains a PeerNet, not a {type(net).__name__}: make one of your network by "
                "coterie.PeerNet(network, peers=3)."
            )
        if net.size < self.least_peers:
            raise InputError(f"{type(self).__name__} needs at least {self.least_peers} peers, not {net.size}.")
        self.net = net
        self.views = self.view_count(net.size)
        """How many views of each image it takes: 1, or one per peer. Any other number is refused."""
        self.cross_entropy = CrossEntropy()
        """Computes the cross-entropy terms; replace it for label smoothing, class weights or another task."""
        self._read_targets = False
        self._trained = False  # whether losses were computed for a backward pass
        self._compiled: Callable[..., dict[str, Tensor]] | None = None
        self.mean: MeanPeers | None = None
        self.deploys_mean = False
        self.selected: str | None = None
        """The predictor to deploy, peer1 or mean1, where held-out images have selected it."""

    @property
    def task(self) -> Task:
        """The task of `cross_entropy`, single-label or multi-label, with its divergences and probabilities."""
        return self.cross_entropy.task

    def prepare(self) -> None:
        """Load what only training needs; called once before training."""

    def __call__(self, views: Tensor | Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        """Compute the weighted terms of the objective and their sum, `loss`.

        Args:
            views: as many augmented batches of the same images as `self.views` says; for one, also a tensor.
            targets: class numbers (B,), or probabilities (B, C).
            epoch: epochs trained so far; it may be a fraction.
        """
        batches = [views] if isinstance(views, Tensor) or not isinstance(views, Iterable) else list(views)
        if odd := [view for view in batches if not isinstance(view, Tensor)]:
            raise InputError(f"A view must be a tensor, a batch of images, not {type(odd[0]).__name__}.")
        if len(batches) != self.views:
            raise InputError(self._wrong_views(len(batches)))
        if len(sizes := {len(batch): None for batch in batches}) > 1:
            numbers = " and ".join(map(str, sizes))
            raise InputError(f"The views are of {numbers} images: all must be of the same images, in one order.")
        if not isinstance(epoch, Real | Tensor):
            raise InputError(f"`epoch` must be the number of epochs trained so far, not {epoch!r}.")
        self._trained |= self.training and torch.is_grad_enabled()
        try:
            targets = self._checked(targets, len(batches[0]))
            if self._compiled is not None:
                # A number would be a constant of the graph, and every epoch compile another one.
                terms = self._compiled(batches, targets, torch.full((), float(epoch), device=batches[0].device))
            else:
                terms = super().__call__(batches, targets, epoch)
        except (IndexError, RuntimeError):
            if targets.is_cpu:  # a GPU gives no values after such an error, and reading them before waits for it
                self.task.checked(targets, len(batches[0]), self.net.num_classes)
            raise
        return check_terms(terms, type(self).forward)

    @abstractmethod
    def forward(self, views: Views, targets: Tensor, epoch: float) -> dict[str, Tensor]:
        """Return the weighted terms of the objective and their sum, `loss`; `views` is a list of `self.views`."""

    def _wrong_views(self, count: int) -> str:
        name = type(self).__name__
        if self.views == 1:
            return f"{name} takes one view of each image, not {count}: pass one augmented batch, such as views[0]."
        return (
            f"{name} takes {self.views} views of each image, not {count}: pass a list of {self.views} batches of "
            "the same images, each augmented anew."
        )

    def _checked(self, targets: Tensor, batch: int) -> Tensor:
        if not isinstance(targets, Tensor):
            raise InputError(
                f"Targets must be a tensor of class numbers or probabilities, not {type(targets).__name__}."
            )
        if (targets.dim() == 2 or not self.task.one_label) and not self.soft_targets:
            raise InputError(
                f"{type(self).__name__} compares classes: its targets must be class numbers, not probabilities."
            )
        # Reading values waits for a GPU: on one, only the first probabilities are read.
        read = targets.dim() == 2 and (targets.is_cpu or not (self._read_targets or targets.is_meta))
        self._read_targets |= read
        return self.task.checked(targets, batch, self.net.num_classes, read)

    def ensemble(self, peers: Peers) -> Tensor | None:
        """Return the ensemble's logits (B, C) from what its peers computed; None without an ensemble."""
        return None

    def after_step(self) -> None:
        """Update the weight averages; call it after every optimiser step."""
        if self.mean is not None:
            self.mean.update(self)

    def compile(self, **options: Any) -> None:
        """Run forward passes as graphs made by `torch.compile`, whose options are taken.

        Where `one_graph` is set, losses and all networks are one; else the peers are one, and their averages
        another. The networks of an evaluation are the latter in any case.
        """
        for _, method in self.raw_and_mean():
            method.net.compile_peers(**options)
        if self.one_graph:
            self._compiled = torch.compile(own_code(self.forward), **{"fullgraph": True, **options})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled graph of copies and pickles: it belongs to these very modules."""
        return {**super().__getstate__(), "_compiled": None}

    def keep_mean(self, beta: float, batch_norm: Literal["own", "average"] = "average") -> None:
        """Average the weights of the peers and of everything trained beside them from now on."""
        self.mean = MeanPeers(self, beta, batch_norm)

    @property
    def deployed(self) -> str:
        """The name of the predictor that `deploy` returns."""
        return self.selected or ("mean1" if self.deploys_mean else "peer1")

    def deploy(self) -> nn.Module:
        """Return the network to ship: the user's own class and keys, in evaluation mode, a copy of its own.

        It is refused if the peers were trained and the averages never followed them.
        """
        if self._averages_left_behind():
            raise InputError(
                f"{type(self).__name__} was trained, but its averaged weights were never updated: call "
                "`after_step()` after every optimiser step."
            )
        network = standalone(self.predictors()[self.deployed])
        for p, trained in zip(network.parameters(), self.net.peers[0].parameters(), strict=True):
            p.requires_grad_(trained.requires_grad)
        return network

    def _averages_left_behind(self) -> bool:
        """Tell whether training changed the weights and `after_step` was never called, here or before a resume.

        Only a step of the optimiser changes them: not one that was skipped, nor a backward pass that accumulates.
        """
        if self.mean is None or self.mean_method is None or self.mean.step or not self._trained:
            return False
        pairs = zip(self.net.parameters(), self.mean_method.net.parameters(), strict=True)
        return not all(torch.equal(p, average) for p, average in pairs)

    def predictors(self) -> dict[str, nn.Module]:
        """Return every network that can be evaluated or deployed, each from images to logits."""
        networks: dict[str, nn.Module] = {f"peer{j}": peer for j, peer in enumerate(self.net.peers, 1)}
        if self.mean_method is not None:
            networks |= {f"mean{j}": peer for j, peer in enumerate(self.mean_method.net.peers, 1)}
        if self.has_ensemble:
            networks |= {self._ensemble_name(kind): Ensemble(method) for kind, method in self.raw_and_mean()}
        return networks

    def logits(self, images: Tensor) -> dict[str, Tensor]:
        """Return the logits of every predictor for a batch, each trunk run once: `predictors` for evaluation."""
        logits: dict[str, Tensor] = {}
        for kind, method in self.raw_and_mean():
            peers = method.net(images)
            name = "peer" if kind == "raw" else "mean"
            logits |= {f"{name}{j}": z for j, z in enumerate(peers.logits, 1)}
            ensemble = method.ensemble(peers)
            if ensemble is not None:
                logits[self._ensemble_name(kind)] = ensemble
        return logits

    @property
    def has_ensemble(self) -> bool:
        return type(self).ensemble is not Method.ensemble

    @property
    def mean_method(self) -> Method | None:
        """This method with averaged weights, if they are kept."""
        average = self.mean.average if self.mean is not None else None
        return average if isinstance(average, Method) else None

    def raw_and_mean(self) -> list[tuple[str, Method]]:
        kinds = {"raw": self, "mean": self.mean_method}
        return [(kind, method) for kind, method in kinds.items() if method is not None]

    def _ensemble_name(self, kind: str) -> str:
        """`ensemble` is the one to deploy; the other of raw and averaged weights carries its kind."""
        return "ensemble" if (kind == "mean") == self.deploys_mean else f"{kind}_ensemble"

    @classmethod
    def view_count(cls, peers: int, options: Mapping[str, object] = {}) -> int:
        """Give the number of views of each image that a step with this many peers and these options takes."""
        return 1

    @classmethod
    def step_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, teacher_size: float = 1.0
    ) -> float:
        """Give the multiply-adds of a training step in steps of the plain network.

        A backward pass counts two forward passes. Override this where a step is more than a forward and a backward
        pass of the peers on one view.

        Args:
            peers: how many there are.
            share: the part of the network's work that each peer does for itself; 1 where nothing is shared.
            options: of its `__init__`, as far as they are given.
            teacher_size: the work of a trained teacher in that of the network, for methods that have one.
        """
        return cls.forward_cost(peers, share)

    @classmethod
    def forward_cost(cls, peers: int, share: float) -> float:
        """Give the cost of all peers on one view in forward passes of the plain network."""
        if cls.trains == "branches":
            return 1 - share + peers * share
        return 1.0 if cls.trains == "one network" else float(peers)

    @classmethod
    def evaluation_cost(
        cls, peers: int, share: float, options: Mapping[str, object] = {}, ema: bool = False
    ) -> float:
        """Give the cost of evaluating every predictor in forward passes of the plain network.

        The peers run once, and once more with averaged weights if these are kept, by the method or for `ema`.
        """
        return cls.forward_cost(peers, share) * (2 if ema or cls.averages_weights(options) else 1)

    @classmethod
    def averages_weights(cls, options: Mapping[str, object] = {}) -> bool:
        """Tell whether the method itself keeps averaged weights with these options."""
        return False

    @classmethod
    def option(cls, options: Mapping[str, object], name: str) -> Any:
        """Give an option's value: the one that is given, else the default of `__init__`."""
        if name in options:
            return options[name]
        signatures = (inspect.signature(base).parameters for base in cls.__mro__)  # a subclass may pass options on
        return next(parameters[name].default for parameters in signatures if name in parameters)


def method_summary(method: type[Method]) -> str:
    """Return the first sentence of a method's docstring, on one line; empty if the class has none of its own."""
    paragraph = " ".join(inspect.cleandoc(method.__doc__ or "").split("\n\n")[0].split())
    return shorten(re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)[0], 300, placeholder="...")


class Ensemble(nn.Module):
    """All peers of a method and its ensemble head as one network from images to logits."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        bare = copy.copy(method)  # the same peers and heads, without their averages
        bare._modules = {name: part for name, part in method._modules.items() if name != "mean"}
        bare.mean = None
        self.method = bare

    def forward(self, images: Tensor) -> Tensor:
        logits = self.method.ensemble(self.method.net(images))
        assert logits is not None
        return logits
