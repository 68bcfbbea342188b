"""PeerNet: a factory becomes m complete networks that share their modules before a cut."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .cutting import Split, Trace, evaluating
from .errors import InputError

Factory = Callable[[], nn.Module]


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
    """m networks of the user's own class; before the cut they are given the same module objects.

    Args:
        make_model: a factory, called once per peer; a module, which is copied, its branches re-initialised;
            or a sequence of either, one per peer, for whole networks of different architectures.
        peers: how many.
        cut: the name of the module where the branches begin; None shares nothing (whole networks).
        example: a batch of inputs for the dry run; without one, the input the network declares
            (timm's `default_cfg`), else 3x32x32, else 3x224x224.
        keep: when copying a module, keep its weights in every branch (for fine-tuning).
    """

    def __init__(
        self,
        make_model: Factory | nn.Module | Sequence[Factory | nn.Module],
        peers: int = 3,
        cut: str | None = None,
        example: Tensor | None = None,
        *,
        keep: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(make_model, Sequence):
            if cut is not None:
                raise InputError("Peers of different architectures share nothing: leave out the cut.")
            makers = list(make_model)
        else:
            if peers < 1:
                raise InputError(f"A network needs at least one peer, not {peers}.")
            makers = [make_model] * peers
        models = [_make(maker) for maker in makers]
        example = _example(models[0]) if example is None else example
        traces = [_trace(model, example) for model in models]
        self.num_classes = _same_classes(traces)
        self.split: Split | None = traces[0].split(cut) if cut is not None else None
        if isinstance(make_model, nn.Module) and not keep:
            for model in models[1:]:
                _reinitialise(model, self.split)
        if self.split is not None:
            for model in models[1:]:
                _share(models[0], model, self.split)
        self.peers = nn.ModuleList(models)
        self._taps = [_Taps(model, trace, cut) for model, trace in zip(models, traces, strict=True)]
        self._fragile: frozenset[str] = frozenset()
        self.shapes = self._check(example)

    @property
    def size(self) -> int:
        """m, the number of peers."""
        return len(self.peers)

    def forward(self, views: Tensor | Sequence[Tensor], joint: bool = False) -> Peers:
        """Run every peer: on one view for all, the shared modules once; or on m views, one per peer.

        With `joint`, the shared modules see the m views as one batch (one set of batch-norm statistics).
        """
        if isinstance(views, Tensor):
            each, one_trunk = [views] * self.size, self.split is not None and self.size > 1
        else:
            each, one_trunk = list(views), joint and self.split is not None
            if len(each) != self.size:
                raise InputError(f"{self.size} peers need {self.size} views or one for all, not {len(each)}.")
        logits = []
        with (
            self._trunk_once(each if not isinstance(views, Tensor) else None) if one_trunk else _nothing() as turn
        ):
            for j, (peer, view) in enumerate(zip(self.peers, each, strict=True)):
                turn(j)
                logits.append(peer(view))
        taken = [taps.take() for taps in self._taps]
        features, maps, trunks = zip(*taken, strict=True)
        trunk = tuple(t for t in trunks if t is not None)
        return Peers(torch.stack(logits), features, maps, trunk[:1] if isinstance(views, Tensor) else trunk)

    @contextmanager
    def _trunk_once(self, joint_views: list[Tensor] | None = None) -> Iterator[Callable[[int], None]]:
        """While this lasts each shared module runs once: later peers are handed what it gave the first.

        Yields a function to call with j before peer j runs.
        """
        assert self.split is not None
        modules = {name: self.peers[0].get_submodule(name) for name in self.split.calls}
        memo = {name: _Memo(module, name in self._fragile) for name, module in modules.items()}
        for name, module in modules.items():
            module._call_impl = memo[name]  # type: ignore[method-assign]  # what Module.__call__ looks up
        try:
            if joint_views is not None:
                self._run_trunk(torch.cat(joint_views))
                for kept in memo.values():
                    kept.slices = len(joint_views)

            def turn(j: int) -> None:
                for kept in memo.values():
                    kept.rewind(j)

            yield turn
        finally:
            for module in modules.values():
                del module._call_impl

    def _run_trunk(self, view: Tensor) -> None:
        assert self.split is not None
        cut = self.peers[0].get_submodule(self.split.cut)

        def stop(module: nn.Module, args: Any) -> None:
            raise _TrunkDone

        handle = cut.register_forward_pre_hook(stop, prepend=True)
        try:
            self.peers[0](view)
        except _TrunkDone:
            pass
        finally:
            handle.remove()

    def _check(self, example: Tensor) -> dict[str, tuple[torch.Size | None, ...]]:
        """Assert that peers sharing one trunk run give exactly what each gives alone; learn the shapes."""
        with evaluating(self):
            alone = [peer(example) for peer in self.peers]
            for taps in self._taps:
                taps.trunk.copies = taps.trunk.changed()
                taps.take()
            if self.split is not None and self.size > 1:
                self._fragile = self._find_fragile(example)
            together = self(example)
        for j, expected in enumerate(alone):
            if not torch.equal(together.logits[j], expected):
                where = f" at '{self.split.cut}'" if self.split else ""
                raise InputError(
                    f"Cut{where}, peer {j + 1} does not reproduce the network it was made from; "
                    "does its forward pass keep state or draw random numbers in evaluation mode?"
                )
        shapes = {
            "features": tuple(None if f is None else f.shape[1:] for f in together.features),
            "maps": tuple(None if f is None else f.shape[1:] for f in together.maps),
            "trunk": tuple(t.shape[1:] for t in together.trunk),
        }
        return shapes

    def _find_fragile(self, example: Tensor) -> frozenset[str]:
        """The shared modules whose output something outside of them changes in place.

        In-place activations where a branch begins, or `x += ...` in a forward method, would corrupt what the
        other peers are handed: they get copies of these.
        """
        assert self.split is not None
        versions: dict[str, tuple[Tensor, int]] = {}
        fragile: set[str] = set()

        def note_changes() -> None:
            fragile.update(name for name, (t, version) in versions.items() if t._version != version)

        handles = []
        for name in self.split.calls:

            def enter(module: nn.Module, args: Any) -> None:
                note_changes()

            def leave(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
                # What a shared module does to an earlier output is done once and harms nobody.
                for other, (t, _) in versions.items():
                    versions[other] = (t, t._version)
                if isinstance(output, Tensor):
                    versions[name] = (output, output._version)

            module = self.peers[0].get_submodule(name)
            handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        self.peers[0](example)
        note_changes()
        self._taps[0].take()
        for handle in handles:
            handle.remove()
        return frozenset(fragile)


class _Memo:
    """Stands in for a shared module's call: runs it for the first peer, hands the outputs to the others."""

    def __init__(self, module: nn.Module, fragile: bool) -> None:
        self.run = type(module)._call_impl.__get__(module)
        self.fragile = fragile
        self.outputs: list[Any] = []
        self.next = 0
        self.peer = 0
        self.slices = 1

    def rewind(self, peer: int) -> None:
        self.next, self.peer = 0, peer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.next == len(self.outputs):
            self.outputs.append(self.run(*args, **kwargs))
        output = self.outputs[self.next]
        self.next += 1
        if self.slices > 1:
            output = tree_map_only(Tensor, self._slice, output)
        return tree_map_only(Tensor, Tensor.clone, output) if self.fragile else output

    def _slice(self, output: Tensor) -> Tensor:
        return output.chunk(self.slices)[self.peer] if output.dim() and len(output) % self.slices == 0 else output


class _TrunkDone(Exception):
    pass


@contextmanager
def _nothing() -> Iterator[Callable[[int], None]]:
    yield lambda j: None


class _Tap:
    """A hook that keeps the tensor passing by: a module's input or its output."""

    def __init__(self, of_input: bool) -> None:
        self.of_input = of_input
        self.copies = False  # where the tensor is changed in place after it has passed
        self.value: Tensor | None = None
        self.version = 0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any = None) -> None:
        value = args[0] if self.of_input else output
        self.value = value.clone() if self.copies else value
        self.version = self.value._version

    def changed(self) -> bool:
        return self.value is not None and self.value._version != self.version


class _Taps:
    """The one place where features, maps and trunk outputs are taken from a peer."""

    def __init__(self, model: nn.Module, trace: Trace, cut: str | None) -> None:
        classifier = getattr(model, "feature_module", None) or trace.last_linear()
        self.feature = self._tap(model, classifier, of_input=True)
        self.map = self._tap(model, trace.last_map(after=cut), of_input=False)
        self.trunk = self._tap(model, cut, of_input=True)

    @staticmethod
    def _tap(model: nn.Module, name: str | None, of_input: bool) -> _Tap:
        tap = _Tap(of_input)
        if name is not None:
            module = model.get_submodule(name)
            if of_input:
                module.register_forward_pre_hook(tap)
            else:
                module.register_forward_hook(tap)
        return tap

    def take(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        taken = []
        for tap in (self.feature, self.map, self.trunk):
            taken.append(tap.value)
            tap.value = None  # a tap must not keep a graph alive
        feature, map_, trunk = taken
        return (feature.flatten(1) if feature is not None else None), map_, trunk


def standalone(peer: nn.Module) -> nn.Module:
    """A peer as a network of its own: a copy in evaluation mode, without the taps of its PeerNet.

    Its weights are laid out as a new network's are, whatever layout training chose: same bits out.
    """
    network = copy.deepcopy(peer).eval()
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for module in network.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            for key in [k for k, hook in hooks.items() if isinstance(hook, _Tap)]:
                del hooks[key]
    return network


def _make(maker: Factory | nn.Module) -> nn.Module:
    model = copy.deepcopy(maker) if isinstance(maker, nn.Module) else maker()
    if not isinstance(model, nn.Module):
        raise InputError(f"The factory returned {type(model).__name__}, not a torch.nn.Module.")
    return model


def _example(model: nn.Module) -> Tensor:
    declared = getattr(model, "default_cfg", None) or {}
    sizes = [declared["input_size"]] if "input_size" in declared else [(3, 32, 32), (3, 224, 224)]
    reference = next(model.parameters(), torch.zeros(()))
    for size in sizes:
        example = torch.randn(2, *size, device=reference.device, dtype=reference.dtype)
        try:
            with evaluating(model):
                model(example)
        except (RuntimeError, ValueError, AssertionError):
            continue
        return example
    tried = ", ".join("x".join(map(str, size)) for size in sizes)
    raise InputError(f"{type(model).__name__} takes no image of {tried}: pass a batch of inputs as `example`.")


def _trace(model: nn.Module, example: Tensor) -> Trace:
    trace = Trace(model, example)
    output = trace.output
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != len(example):
        came = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"{type(model).__name__} must return logits of shape (batch, classes), but gave {came}: "
            "wrap it in a module whose forward returns the logits alone."
        )
    return trace


def _same_classes(traces: list[Trace]) -> int:
    classes = [trace.output.shape[1] for trace in traces]
    if len(set(classes)) > 1:
        raise InputError(f"Peers must have the same number of classes, not {', '.join(map(str, classes))}.")
    return int(classes[0])


def _reinitialise(model: nn.Module, split: Split | None) -> None:
    """Draw new weights for every layer of the branch that knows how to."""
    kept = {part for name in split.modules for part in model.get_submodule(name).modules()} if split else set()
    for module in model.modules():
        if module not in kept and callable(reset := getattr(module, "reset_parameters", None)):
            reset()


def _share(first: nn.Module, other: nn.Module, split: Split) -> None:
    """Give `other` the very modules, parameters and buffers that `first` has before the cut."""
    for name in split.modules:
        owner, _, child = name.rpartition(".")
        other.get_submodule(owner)._modules[child] = first.get_submodule(name)
    for name in split.owners:
        mine, theirs = first.get_submodule(name), other.get_submodule(name)
        theirs._parameters.update(mine._parameters)
        theirs._buffers.update(mine._buffers)
