"""PeerNet: a factory becomes m complete networks that share their modules before a cut."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from numbers import Integral
from types import FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import InputError, reason
from .build import (
    Factory,
    example_for,
    make_network,
    reinitialise,
    same_classes,
    share_modules,
    trace_logits,
    warn_of_equal_weights,
)
from .cuts import split_at
from .hooks import Tap, Taps
from .shared import Trunk, scaled_gradients
from .trace import Split, evaluating, shared_parameters

P = ParamSpec("P")
R = TypeVar("R")


def not_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Keep a function out of compiled graphs, as `torch.compiler.disable` does.

    That imports the compiler at once, which takes as long as importing torch, also where nothing is compiled.
    """
    disabled: list[Callable[P, R]] = []

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return run


@dataclass
class Peers:
    """What the peers computed in one forward pass.

    logits:   (m, B, C).
    features: per peer, the pooled feature (B, d), input of its classifier; None where there is no classifier.
    maps:     per peer, its last spatial tensor (B, d, H, W); None where there is none.
    trunk:    per view, the trunk's output: what enters the cut; empty for whole networks.
    """

    logits: Tensor
    features: tuple[Tensor | None, ...]
    maps: tuple[Tensor | None, ...]
    trunk: tuple[Tensor, ...]


class PeerNet(nn.Module):
    """Several networks of your class that share the modules before a cut.

    Args:
        make_model: a factory, which is called once per peer; a module, which is copied, with new weights in the
            branches of all peers but the first; or a sequence of these, one per peer, for different architectures.
        peers: the number of peers; by default 3, or one for each of a sequence.
        cut: the name of the module where the branches begin; None shares nothing (whole networks).
        example: a batch of inputs to trace the network with; by default the input that the network declares
            (timm's `default_cfg`), else 3x32x32, else 3x224x224.
        keep: if `make_model` is a module, keep its weights in every branch (for fine-tuning).
        checkpoint_activations: recompute the shared modules in the backward pass, to save memory.
    """

    def __init__(
        self,
        make_model: Factory | nn.Module | Sequence[Factory | nn.Module],
        peers: int | None = None,
        cut: str | None = None,
        example: Tensor | None = None,
        *,
        keep: bool = False,
        checkpoint_activations: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(make_model, Sequence) and not isinstance(make_model, str):  # a name is refused below
            if cut is not None:
                raise InputError("Peers of different architectures share nothing: leave out the cut.")
            makers = list(make_model)
            if not makers or peers not in (None, len(makers)):
                number = len(makers) if peers is None else peers
                raise InputError(
                    f"A sequence of {len(makers)} networks cannot make {number} peers: give one for each."
                )
        else:
            peers = 3 if peers is None else peers
            if not isinstance(peers, Integral) or peers < 1:
                raise InputError(f"`peers` must be a whole number, at least one peer, not {peers!r}.")
            makers = [make_model] * peers
        if example is not None and not (isinstance(example, Tensor) and example.dim()):
            raise InputError(f"`example` must be a tensor, a batch of inputs, not {example!r}.")
        models = [make_network(maker) for maker in makers]
        example = example_for(models[0]) if example is None else example
        traces = [trace_logits(model, example) for model in models]
        self.num_classes = same_classes(traces)
        self.input_shape = example.shape[1:]
        self.split: Split | None = split_at(traces[0], cut, example) if cut is not None else None
        if isinstance(make_model, nn.Module) and not keep:
            for model in models[1:]:
                reinitialise(model, self.split)
            warn_of_equal_weights(models, self.split)
        if self.split is not None:
            for model in models[1:]:
                share_modules(models[0], model, self.split)
        self.peers = nn.ModuleList(models)
        self.checkpoint_activations = checkpoint_activations
        self._compiled: Callable[[list[Tensor]], list[Any]] | None = None
        self._trunk = Trunk(models[0], self.split, example)
        self._taps = [Taps(model, trace, cut) for model, trace in zip(models, traces, strict=True)]
        for taps in self._taps:
            taps.trunk.copies = self._trunk.output_changes
        self._changes_input = self._joint_checked = False
        self._image = example[:1].clone()
        self.shapes = self._check(example)

    @property
    def size(self) -> int:
        """m, the number of peers."""
        return len(self.peers)

    def forward(self, views: Tensor | Sequence[Tensor], joint: bool = False, trunk_gradient: float = 1.0) -> Peers:
        """Run every peer: on one view for all, the shared modules once; or on m views, one for each peer.

        With `joint`, the shared modules see the m views as one batch (one set of batch-norm statistics).
        What the trunk's parameters receive in the backward pass is multiplied with `trunk_gradient`.
        """
        if joint and not isinstance(views, Tensor):
            self.check_joint()
        if trunk_gradient != 1.0 and self.split is not None:
            # Not compiled: the stand-ins for the parameters are new ones in every step.
            compiled, self._compiled = self._compiled, None
            try:
                scaled = scaled_gradients(self, shared_parameters(self.peers[0], self.split), trunk_gradient)
                # Every place is named once: with `tie_weights` torch would not restore modules with two names.
                peers: Peers = functional_call(self, scaled, (views, joint), tie_weights=False)
                return peers
            finally:
                self._compiled = compiled
        inputs = [views] if isinstance(views, Tensor) else list(views)
        one_view = len(inputs) == 1
        if one_view:
            inputs *= self.size
        if len(inputs) != self.size:
            raise InputError(f"{self.size} peers need {self.size} views or one for all, not {len(inputs)}.")
        if self._changes_input:
            inputs = [view.clone() for view in inputs]
        joint = joint and not one_view and self.split is not None
        if joint or (self.split is not None and (self.checkpoint_activations or (one_view and self.size > 1))):
            computed = self._through_trunk(inputs, once=joint or one_view, joint=joint)
        else:
            computed = (self._compiled or self._run)(inputs)
        logits, features, maps, trunks = zip(*computed, strict=True)
        trunk = tuple(t for t in trunks if t is not None)
        return Peers(torch.stack(logits), features, maps, trunk[:1] if one_view else trunk)

    def compile_peers(self, **options: Any) -> None:
        """Run all peers from now on as one graph of `torch.compile`, with its options, without a break.

        Copies, such as mean teachers, are compiled by their own call.
        """
        if self.checkpoint_activations:
            raise InputError(
                "A compiler chooses by itself what to recompute: leave out checkpoint_activations or compile."
            )
        self._compiled = torch.compile(own_code(self._run), **{"fullgraph": True, **options})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled graph of copies and pickles: it belongs to these very modules."""
        return {**super().__getstate__(), "_compiled": None}

    def _run(self, views: list[Tensor]) -> list[Any]:
        """Run each peer on its view: (logits, feature, map, trunk output) of each."""
        computed = []
        for j, (peer, taps, view) in enumerate(zip(self.peers, self._taps, views, strict=True)):
            self._trunk.select_peer(j)
            taps.open()
            logits = peer(view)
            computed.append((logits, *taps.take()))
        return computed

    @not_compiled  # a compiler from outside would not see the replaced calls; ours is within
    def _through_trunk(self, views: list[Tensor], once: bool, joint: bool) -> list[Any]:
        compiled = None if joint else self._compiled
        with self._trunk.running(once, self.checkpoint_activations, compiled is not None):
            if joint:
                assert self.split is not None
                self._trunk.run_joint(self.peers[0], self.split.cut, views)
            return (compiled or self._run)(views)

    def _check(self, example: Tensor) -> dict[str, tuple[torch.Size | None, ...]]:
        """Assert that peers sharing one trunk run give exactly what each gives alone; learn the shapes.

        On one image more than in the dry run, and in another order: what a network has kept from there would show.
        """
        images = torch.cat([example, example[:1]]).flip(0)
        inputs = images.clone()
        alone: list[Tensor] = []
        ran: list[set[str]] = []
        prefix = f"Cut at '{self.split.cut}', peer" if self.split else "Peer"
        try:
            with evaluating(self):
                for peer in self.peers:
                    with self._trunk.watched() as names:
                        alone.append(peer(inputs))
                    ran.append(names)
                    if idle := min(ran[0] - names, default=None):
                        raise InputError(
                            f"{prefix} {len(alone)} runs a '{idle}' of its own instead of the shared one: keep "
                            "submodules in an nn.ModuleList or nn.Sequential, not in a list of Python's."
                        )
                    self._changes_input |= not torch.equal(inputs, images)
                    inputs = images.clone()
                together = self(inputs)
        except InputError:
            raise
        except Exception as error:  # whatever a user's forward may raise
            raise InputError(
                f"{prefix} {min(len(alone) + 1, self.size)} fails on a second batch of images: "
                f"{type(error).__name__}: {reason(error)}"
            ) from error
        for j, expected in enumerate(alone):
            if not torch.equal(together.logits[j], expected):
                raise InputError(
                    f"{prefix} {j + 1} does not reproduce the network it was made from; "
                    "does its forward pass keep state or draw random numbers in evaluation mode?"
                )
        return {
            "features": tuple(None if f is None else f.shape[1:] for f in together.features),
            "maps": tuple(None if f is None else f.shape[1:] for f in together.maps),
            "trunk": tuple(t.shape[1:] for t in together.trunk),
        }

    @not_compiled
    def check_joint(self) -> None:
        """Assert that `joint` gives, in evaluation mode, what each peer gives on its own view; done once.

        The first joint pass calls it; a method that will want one may call it earlier.
        """
        if self.split is None or self._joint_checked:
            return
        self._joint_checked = True  # it runs a joint pass itself
        try:
            self._compare_joint(self.split.cut)
        except Exception as error:  # whatever a user's forward may raise
            self._joint_checked = False
            name = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            raise InputError(
                f"Cut at '{self.split.cut}', the views of all peers cannot be one batch for the shared modules "
                f"({name}{reason(error)}): leave out joint_trunk."
            ) from error

    def _compare_joint(self, cut: str) -> None:
        reference = next(self.parameters())
        image = self._image.to(reference.device)
        image = image.to(reference.dtype) if image.is_floating_point() else image
        self._trunk.learn_batch_dims(self.peers[0], cut, _other_images(image, 3))
        views = list(_other_images(image, 2 * self.size).chunk(self.size))
        with evaluating(self):
            expected = torch.stack([p(v.clone()) for p, v in zip(self.peers, views, strict=True)])
            joint_logits = self(views, joint=True).logits
        # Not to the bit: kernels may round otherwise in a larger batch, on GPUs as coarsely as TF32. Half of the
        # digits must agree.
        tf32 = joint_logits.is_cuda and joint_logits.dtype == torch.float32
        precision = 2.0**-10 if tf32 else torch.finfo(joint_logits.dtype).eps
        expected = expected.cpu().double()  # not every device has float64
        differences = (joint_logits.cpu().double() - expected).abs().amax((1, 2))
        worst = int(differences.argmax())
        if not differences[worst] <= math.sqrt(precision) * expected.abs().max():
            raise InputError(
                f"peer {worst + 1}'s logits differ by {differences[worst]:.2g} from those for its own view"
            )


def own_code(method: Any) -> MethodType:
    """Copy a bound method with a code object of its own.

    The compiler counts recompilations per code object, and two nets of a process are not alike.
    """
    function = method.__func__
    parts = (function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return MethodType(FunctionType(function.__code__.replace(), *parts), method.__self__)


def _other_images(image: Tensor, count: int) -> Tensor:
    """Different images of values that this one has, or if it has but one, of random ones; the same every time."""
    generator = torch.Generator().manual_seed(0)
    values = image.flatten()
    if bool((values == values[0]).all()):
        values = torch.randn(1000, generator=generator).to(image)
    chosen = torch.randint(len(values), (count, *image.shape[1:]), generator=generator)
    return values[chosen.to(image.device)]


def standalone(peer: nn.Module) -> nn.Module:
    """Return a peer as a network of its own: a copy in evaluation mode, without the taps of its PeerNet.

    Its weights are laid out as a new network's are, whatever layout training chose: same bits out.
    """
    network = copy.deepcopy(peer).eval()
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for module in network.modules():
        for hooks, marks in (
            (module._forward_hooks, module._forward_hooks_with_kwargs),
            (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
        ):
            for key in [k for k, hook in hooks.items() if isinstance(hook, Tap)]:
                del hooks[key], marks[key]
    return network
