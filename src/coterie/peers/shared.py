"""The modules that peers share, while a forward pass lasts: run once for all, or recomputed and not kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
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

    def __init__(self, module: nn.Module, clone_outputs: bool) -> None:
        self.module, self.clone_outputs = module, clone_outputs
        self.once = self.recompute = self.of_forward = False
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
    """The shared modules of a PeerNet by their calls, and how they run in this forward pass.

    Without a split there are none.
    """

    def __init__(self, first: nn.Module, split: Split | None, example: Tensor) -> None:
        self.calls: dict[str, SharedCall] = {}
        self.output_changes = False
        """Whether a branch changes in place what enters it."""
        if split is not None:
            changed = changed_in_place(first, split, example)
            self.output_changes = split.cut in changed
            self.calls = {name: SharedCall(first.get_submodule(name), name in changed) for name in split.calls}

    @contextmanager
    def running(self, once: bool, recompute: bool, compiled: bool) -> Iterator[None]:
        """Send the shared modules' calls, while the context lasts, through their `SharedCall`.

        Hooks on a shared module see it run once, as `_call_impl` is what is replaced; a compiler sees only
        `forward`.
        """
        slot = "forward" if compiled else "_call_impl"
        for call in self.calls.values():
            call.once, call.recompute, call.of_forward = once, recompute, compiled
            call.reset()
            setattr(call.module, slot, call)
        try:
            yield
        finally:
            for call in self.calls.values():
                delattr(call.module, slot)
                call.reset()  # no graph is kept alive

    @contextmanager
    def watched(self) -> Iterator[set[str]]:
        """Collect the names of the shared modules that run while the context lasts."""
        ran: set[str] = set()
        with ExitStack() as hooks:
            for name, call in self.calls.items():
                note = lambda module, args, name=name: ran.add(name)  # noqa: E731
                hooks.enter_context(call.module.register_forward_pre_hook(note))
            yield ran

    def select_peer(self, peer: int) -> None:
        for call in self.calls.values():
            call.select_peer(peer)

    def run_joint(self, network: nn.Module, cut: str, views: Sequence[Tensor]) -> None:
        """Run only the shared modules, on all views as one batch; each peer will be handed its part."""
        self.select_peer(0)
        _run_before(cut, network, torch.cat(list(views)))
        for call in self.calls.values():
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
                for name, call in self.calls.items():
                    dims = _batch_dims(name, more[name], fewer[name]) if more else call.batch_dims[False]
                    call.batch_dims[training] = dims

    def _shapes(self, network: nn.Module, cut: str, images: Tensor) -> dict[str, list[list[torch.Size]]]:
        """Return, for each call of each shared module, the shapes of the tensors that it returns."""
        shapes: dict[str, list[list[torch.Size]]] = {name: [] for name in self.calls}

        def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
            shapes[name].append([tensor.shape for tensor in _tensors(output)])

        with ExitStack() as hooks:
            for name in self.calls:
                hooks.enter_context(network.get_submodule(name).register_forward_hook(partial(leave, name)))
            _run_before(cut, network, images)
        return shapes


def _run_before(cut: str, network: nn.Module, images: Tensor) -> None:
    """Run a network up to its cut."""

    def stop(module: nn.Module, args: Any) -> None:
        raise _TrunkDone

    with network.get_submodule(cut).register_forward_pre_hook(stop, prepend=True), suppress(_TrunkDone):
        network(images)


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
        if any(len(growing) > 1 for growing in differing):
            raise InputError(f"'{name}' returns a tensor of which several dimensions grow with the images")
        dims.append([growing[0] if growing else None for growing in differing])
    return dims


class _TrunkDone(Exception):
    pass


def scaled_gradients(network: nn.Module, parameters: list[nn.Parameter], factor: float) -> dict[str, Tensor]:
    """Return tensors in place of these parameters, by name: they pass on gradients multiplied with a factor.

    On the parameters, not on what crosses the cut: the same, gradients being linear, and right as well for
    networks in which several tensors cross it, or a class token that the peers have in common.
    """
    scaled = {p: p.view_as(p) for p in parameters}
    for tensor in scaled.values():
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: gradient * factor)
    return {
        f"{owner}.{name}": scaled[p]
        for owner, module in network.named_modules()
        for name, p in module._parameters.items()
        if p in scaled
    }


@contextmanager
def scratch_buffers(module: nn.Module) -> Iterator[None]:
    """Replace a module's buffers by copies, while the context lasts: batch-norm statistics stay as they are."""
    kept = [(part, dict(part._buffers)) for part in module.modules() if part._buffers]
    for part, buffers in kept:
        part._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})
    try:
        yield
    finally:
        for part, buffers in kept:
            part._buffers.update(buffers)
