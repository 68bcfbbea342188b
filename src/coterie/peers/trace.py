"""Where a network can be cut in two: one dry run records the order in which its modules execute."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Set evaluation mode without gradients; afterwards restore every module's own training flag."""
    flags = [(part, part.training) for module in modules for part in module.modules()]
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, flag in flags:
            part.training = flag


@dataclass(frozen=True)
class Split:
    """A good cut: what all peers share, by name.

    modules: the largest modules that run wholly before the cut.
    owners:  the ancestors of the cut; what they own directly (class token, position embedding) is shared too.
    calls:   the largest *called* modules before the cut; run once, their outputs serve every peer.
    """

    cut: str
    modules: tuple[str, ...]
    owners: tuple[str, ...]
    calls: tuple[str, ...]


class Trace:
    """The calls of one forward pass of a network, in order."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        self.model = model
        self.modules = dict(model.named_modules())
        self.calls: dict[str, list[tuple[int, int]]] = {}  # name -> [(start, end)] of its own calls
        self.shapes: dict[str, torch.Size] = {}  # name -> shape of its last output, where that is a tensor
        clock = itertools.count()

        def enter(name: str, module: nn.Module, args: Any) -> None:
            self.calls.setdefault(name, []).append((next(clock), -1))

        def leave(name: str, module: nn.Module, args: Any, output: Any) -> None:
            calls = self.calls[name]
            open_call = max(i for i, (_, end) in enumerate(calls) if end < 0)
            calls[open_call] = (calls[open_call][0], next(clock))
            if isinstance(output, Tensor):
                self.shapes[name] = output.shape

        with evaluating(model), ExitStack() as hooks:
            for name, module in self.modules.items():
                hooks.enter_context(module.register_forward_pre_hook(partial(enter, name)))
                hooks.enter_context(module.register_forward_hook(partial(leave, name)))
            self.output = model(example.clone())  # some change their input in place
        # The span of a module reaches over its descendants: a ModuleList is never called itself.
        self.spans: dict[str, tuple[int, int]] = {}
        for name, calls in self.calls.items():
            first, last = calls[0][0], max(end for _, end in calls)
            for owner in (name, *_ancestors(name)):
                low, high = self.spans.get(owner, (first, last))
                self.spans[owner] = (min(low, first), max(high, last))

    def split(self, cut: str) -> Split:
        """Return what lies before `cut`; refuse a bad cut with the reason."""
        try:
            return self._split(cut)
        except _BadCut as error:
            network = type(self.model).__name__
            raise InputError(f"Cannot cut {network} at '{cut}': {error}.") from None

    def good_cuts(self) -> list[Split]:
        """Return every good cut, in the order of execution."""
        splits = []
        for name in sorted(self.calls, key=lambda n: self.calls[n][0][0]):
            try:
                splits.append(self._split(name))
            except _BadCut:
                continue
        return splits

    def _split(self, cut: str) -> Split:
        if cut not in self.modules:
            raise _BadCut("there is no such module")
        if cut not in self.calls:
            raise _BadCut("that module never runs by itself")
        border = self.calls[cut][0][0]
        shared: list[str] = []
        self._before("", cut, border, shared)
        split = Split(
            cut,
            tuple(shared),
            tuple(reversed(_ancestors(cut))),
            tuple(call for name in shared for call in self._called_parts(name)),
        )
        if not any(_has_parameters(self.modules[name]) for name in shared):
            raise _BadCut("nothing with parameters runs before it")
        if not branch_parameters(self.model, split):
            raise _BadCut("nothing with parameters is left after it")
        for places in self._tied:
            before = [_is_before(module, split) for module, _ in places]
            if any(before) and not all(before):
                module, name = places[before.index(False)]
                raise _BadCut(f"'{module}.{name}' is tied to a weight before it")
        return split

    def _before(self, owner: str, cut: str, border: int, shared: list[str]) -> None:
        for child, module in self.modules[owner].named_children():
            name = f"{owner}.{child}" if owner else child
            if name not in self.spans:  # it never runs; a list of parameters belongs to its owner
                if isinstance(module, (nn.ParameterList, nn.ParameterDict)):
                    shared.append(name)
                continue
            if name == cut:  # the branch begins here
                continue
            first, last = self.spans[name]
            if cut.startswith(f"{name}."):
                self._before(name, cut, border, shared)
            elif last < border:
                shared.append(name)
            elif first < border:  # on both sides
                if name not in self.calls:
                    self._before(name, cut, border, shared)
                elif _has_parameters(module):
                    raise _BadCut(f"'{name}', which has parameters, runs both before and after it")

    @cached_property
    def _tied(self) -> list[list[tuple[str, str]]]:
        """Of each weight that several modules have which run: these modules, and its name there."""
        places: dict[nn.Parameter, list[tuple[str, str]]] = {}
        for module in (name for name in self.modules if name in self.spans):
            for name, p in self.modules[module].named_parameters(recurse=False):
                places.setdefault(p, []).append((module, name))
        return [modules for modules in places.values() if len(modules) > 1]

    def _called_parts(self, name: str) -> list[str]:
        if name in self.calls:
            return [name]
        children = (f"{name}.{child}" for child, _ in self.modules[name].named_children())
        return [part for child in children if child in self.spans for part in self._called_parts(child)]

    def classifier(self) -> str | None:
        """Return the last layer to run that gives the logits: a `Linear`, or a 1x1 convolution."""

        def gives_logits(name: str) -> bool:
            layer, shape = self.modules[name], self.shapes.get(name, torch.Size())
            if isinstance(layer, nn.Linear):
                return shape[-1:] == self.output.shape[-1:]
            return (
                isinstance(layer, nn.Conv2d)
                and shape[1:2] == self.output.shape[1:]
                and layer.kernel_size == (1, 1)
            )

        layers = [name for name in self.calls if gives_logits(name)]
        return max(layers, key=lambda n: self.calls[n][-1][0]) if layers else None

    def feature_module(self) -> str | None:
        """Return the module whose input is the pooled feature: what the network declares, else its classifier."""
        declared: str | None = getattr(self.model, "feature_module", None)
        return declared or self.classifier()

    def last_map(self, after: str | None) -> str | None:
        """Name the module that gives the last spatial tensor, (B, C, H, W) with more than one pixel, after a cut.

        It comes before the classifier, and not from within a module that gives tokens: those are attention maps.
        """
        border = self.calls[after][0][0] if after else -1
        classifier = self.feature_module()
        end = self.calls[classifier][-1][0] if classifier in self.calls else self.spans[""][1]
        maps = [
            name
            for name, shape in self.shapes.items()
            if len(shape) == 4
            and shape[-1] * shape[-2] > 1
            and self.calls[name][0][0] >= border
            and self.calls[name][-1][1] < end
            and not any(len(self.shapes.get(owner, ())) == 3 for owner in _ancestors(name))
        ]
        return max(maps, key=lambda n: self.calls[n][-1][1]) if maps else None


class _BadCut(Exception):
    pass


def branch_parameters(model: nn.Module, split: Split) -> list[nn.Parameter]:
    """Return the parameters each peer has for itself."""
    shared = set(shared_parameters(model, split))
    return [p for p in model.parameters() if p not in shared]


def shared_parameters(model: nn.Module, split: Split) -> list[nn.Parameter]:
    """Return the parameters all peers have in common."""
    owned = (p for name in split.owners for p in model.get_submodule(name).parameters(recurse=False))
    inside = (p for name in split.modules for p in model.get_submodule(name).parameters())
    return list(dict.fromkeys((*owned, *inside)))


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _is_before(name: str, split: Split) -> bool:
    return name in split.owners or any(name == part or name.startswith(f"{part}.") for part in split.modules)


def _ancestors(name: str) -> list[str]:
    """'a.b.c' -> ['a.b', 'a', '']; the root has none."""
    parts = name.split(".") if name else []
    return [".".join(parts[:i]) for i in reversed(range(len(parts)))]
