"""The modules that peers share, while a forward pass lasts: run once for all, or recomputed and not kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

from ..errors import InputError
from .in_place import changed_in_place, trial_copy
from .trace import Split

BatchDims = list[list[int | None]]
"""For each call of a module, and each tensor it returns: the dimension that grows with the number of images."""


class SharedCall:
    """Stands in for the call of a shared module: runs it for the first peer, hands the outputs to the others.

    once:    keep the outputs for the peers that follow; else every peer runs the module.
    clone_outputs: something changes the output in place, so that each peer must get a copy.
    slices:  the kept outputs are of this many views as one batch; peer j gets the j-th part of those tensors
        that carry the batch.
    batch_dims: which these are, in evaluation (False) and in training (True).
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.once = self.clone_outputs = self.recompute = self.of_forward = False
        self.outputs: list[Any] = []
        self.next = self.peer = 0
        self.slices = 1
        self.batch_dims: dict[bool, BatchDims] = {}

    def reset(self) -> None:
        self.outputs, self.slices = [], 1

    def select_peer(self, peer: int) -> None:
        self.next, self.peer = 0, peer
        if not self.once:
            self.outputs = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.next == len(self.outputs):
            self.outputs.append(self._run(*args, **kwargs))
        output = self.outputs[self.next]
        if self.slices > 1:
            output = self._own_part(output)
        self.next += 1
        return tree_map_only(Tensor, Tensor.clone, output) if self.clone_outputs and self.once else output

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.of_forward:
            return type(self.module).forward(self.module, *args, **kwargs)
        run = partial(type(self.module)._call_impl, self.module, **kwargs)
        if self.recompute and torch.is_grad_enabled():
            contexts = lambda: (nullcontext(), scratch_buffers(self.module))  # noqa: E731
            return checkpoint(run, *args, use_reentrant=False, context_fn=contexts)
        return run(*args)

    def _own_part(self, output: Any) -> Any:
        """Return the present peer's part of each tensor that carries the batch; all else is the same for all."""
        calls = self.batch_dims[self.module.training]
        dims = calls[self.next] if self.next < len(calls) else []
        if len(dims) != len(_tensors(output)):
            raise InputError(
                f"A shared {type(self.module).__name__} does not always return the same number of tensors, so "
                "that the views of all peers cannot be one batch: leave out joint_trunk."
            )
        following = iter(dims)

        def part(tensor: Tensor) -> Tensor:
            dim = next(following)
            return tensor if dim is None else tensor.chunk(self.slices, dim)[self.peer]

        return tree_map_only(Tensor, part, output)


class Trunk:
    """The shared modules of a PeerNet by their calls, and how they run in this forward pass."""

    def __init__(self, first: nn.Module, split: Split, example: Tensor) -> None:
        self.names = split.calls
        self.calls = [SharedCall(first.get_submodule(name)) for name in self.names]
        changed = changed_in_place(first, split, example)
        self.output_changes = split.cut in changed
        """Whether a branch changes in place what enters it."""
        for name, call in zip(split.calls, self.calls, strict=True):
            call.clone_outputs = name in changed

    @contextmanager
    def running(self, once: bool, recompute: bool, compiled: bool) -> Iterator[None]:
        """Send the shared modules' calls, while the context lasts, through their `SharedCall`.

        Hooks on a shared module see it run once, as `_call_impl` is what is replaced; a compiler sees only
        `forward`.
        """
        slot = "forward" if compiled else "_call_impl"
        for call in self.calls:
            call.once, call.recompute, call.of_forward = once, recompute, compiled
            call.reset()
            setattr(call.module, slot, call)
        try:
            yield
        finally:
            for call in self.calls:
                delattr(call.module, slot)
                call.reset()  # no graph is kept alive

    @contextmanager
    def watched(self) -> Iterator[set[str]]:
        """Collect the names of the shared modules that run while the context lasts."""
        ran: set[str] = set()
        handles = [
            call.module.register_forward_pre_hook(lambda module, args, name=name: ran.add(name))
            for name, call in zip(self.names, self.calls, strict=True)
        ]
        try:
            yield ran
        finally:
            for handle in handles:
                handle.remove()

    def select_peer(self, peer: int) -> None:
        for call in self.calls:
            call.select_peer(peer)

    def run_joint(self, network: nn.Module, cut: nn.Module, views: Sequence[Tensor]) -> None:
        """Run only the shared modules, on all views as one batch; each peer will be handed its part."""
        self.select_peer(0)
        _run_before(cut, network, torch.cat(list(views)))
        for call in self.calls:
            call.slices = len(views)

    def learn_batch_dims(self, network: nn.Module, cut: str, images: Tensor) -> None:
        """Find out which tensors of the shared modules carry the batch: those that grow with the images.

        A length that divides by the number of views proves nothing: a table of six rows has one as well. So they
        run on all these images and on one less, in both modes, as modules may return more in training.
        """
        with trial_copy(network, images) as (trial, batch):
            for training in (False, True):
                trial.train(training)
                try:
                    more, fewer = (self._shapes(trial, cut, part.clone()) for part in (batch, batch[1:]))
                except Exception:  # in training it may want a device or processes that it does not have yet
                    if not training:
                        raise
                    more, fewer = {}, {}
                for name, call in zip(self.names, self.calls, strict=True):
                    known = _batch_dims(name, more[name], fewer[name]) if more else call.batch_dims[False]
                    call.batch_dims[training] = known

    def _shapes(self, network: nn.Module, cut: str, images: Tensor) -> dict[str, list[list[torch.Size]]]:
        """Return, for each call of each shared module, the shapes of the tensors that it returns."""
        shapes: dict[str, list[list[torch.Size]]] = {name: [] for name in self.names}

        def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
            shapes[name].append([tensor.shape for tensor in _tensors(output)])

        handles = [network.get_submodule(name).register_forward_hook(partial(leave, name)) for name in self.names]
        try:
            _run_before(network.get_submodule(cut), network, images)
        finally:
            for handle in handles:
                handle.remove()
        return shapes


def _run_before(cut: nn.Module, network: nn.Module, images: Tensor) -> None:
    """Run a network up to its cut."""

    def stop(module: nn.Module, args: Any) -> None:
        raise _TrunkDone

    handle = cut.register_forward_pre_hook(stop, prepend=True)
    try:
        network(images)
    except _TrunkDone:
        pass
    finally:
        handle.remove()


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _batch_dims(name: str, more: list[list[torch.Size]], fewer: list[list[torch.Size]]) -> BatchDims:
    """Return the dimensions that differ between two runs on different numbers of images."""
    if [list(map(len, call)) for call in more] != [list(map(len, call)) for call in fewer]:
        raise InputError(f"what '{name}' returns depends on the number of images")
    dims: BatchDims = []
    for shapes in zip(more, fewer, strict=True):
        differing = [
            [d for d, (a, b) in enumerate(zip(*pair, strict=True)) if a != b] for pair in zip(*shapes, strict=True)
        ]
        if any(len(some) > 1 for some in differing):
            raise InputError(f"'{name}' returns a tensor of which several dimensions grow with the images")
        dims.append([some[0] if some else None for some in differing])
    return dims


class _TrunkDone(Exception):
    pass


@contextmanager
def scaled_gradients(network: nn.Module, parameters: list[nn.Parameter], factor: float) -> Iterator[None]:
    """Replace these parameters, while the context lasts, by themselves with scaled gradients.

    On the parameters, not on what crosses the cut: the same, gradients being linear, and right as well for
    networks in which several tensors cross it, or a class token that the peers have in common.
    """
    scaled = {p: _Scaled.apply(p, factor) for p in parameters}
    places = [
        (module._parameters, name, p)
        for module in network.modules()
        for name, p in module._parameters.items()
        if p in scaled
    ]
    try:
        for owner, name, p in places:
            owner[name] = scaled[p]
        yield
    finally:
        for owner, name, p in places:
            owner[name] = p


class _Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied with a factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


@contextmanager
def scratch_buffers(*modules: nn.Module) -> Iterator[None]:
    """Replace the modules' buffers by copies, while the context lasts: batch-norm statistics stay as they are."""
    parts = [part for module in modules for part in module.modules()]
    kept = [(part, dict(part._buffers)) for part in parts if part._buffers]
    for part, buffers in kept:
        part._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})
    try:
        yield
    finally:
        for part, buffers in kept:
            part._buffers.update(buffers)
