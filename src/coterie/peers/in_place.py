"""Try a copy of a network: which outputs of its shared modules are changed in place?"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .trace import Split


@contextmanager
def trial_copy(network: nn.Module, example: Tensor) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield a copy of a network, and at least two images, to try it in training; restores the RNG state."""
    images = example if len(example) > 1 else example.repeat(2, *(1,) * (example.dim() - 1))
    devices = [example.device] if example.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        yield copy.deepcopy(network), images.clone()


def changed_in_place(network: nn.Module, split: Split, example: Tensor) -> set[str]:
    """Return the shared modules whose output is changed in place outside of them; the cut, if its input is.

    In-place activations where a branch begins, or `x += ...` in a forward method, would corrupt what the
    other peers are handed. Both modes are tried: dropout in place acts only in training.
    """
    changed: set[str] = set()
    with trial_copy(network, example) as (trial, images):
        for mode in (False, True):
            trial.train(mode)
            changed |= _changes_of_one_run(trial, split, images.clone())
    return changed


def _changes_of_one_run(network: nn.Module, split: Split, images: Tensor) -> set[str]:
    seen: list[tuple[str, Tensor, int]] = []  # whose it is, the tensor, its version when we saw it
    changed: set[str] = set()

    def note_changes(*_: Any) -> None:
        changed.update(name for name, t, version in seen if t._version != version)

    def watch(name: str, value: Any) -> None:
        tree_map_only(Tensor, lambda t: seen.append((name, t, t._version)), value)

    def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
        # What a shared module does to an earlier output is done once and harms nobody.
        seen[:] = [(other, t, t._version) for other, t, _ in seen]
        watch(name, output)

    def enter_cut(module: nn.Module, args: Any, kwargs: Any) -> None:
        watch(split.cut, (args, kwargs))

    with ExitStack() as hooks:
        cut = network.get_submodule(split.cut)
        hooks.enter_context(cut.register_forward_pre_hook(enter_cut, with_kwargs=True))
        for name in split.calls:
            module = network.get_submodule(name)
            hooks.enter_context(module.register_forward_pre_hook(note_changes))
            hooks.enter_context(module.register_forward_hook(partial(leave, name)))
        network(images)
    note_changes()
    return changed
