"""The one place where features, maps and trunk outputs are taken from a peer: hooks that keep what passes by."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .trace import Trace


class Tap:
    """A hook that keeps the tensor passing by, a module's input or its output, while it is open."""

    def __init__(self, of_input: bool, first: bool = False) -> None:
        self.of_input = of_input
        self.first = first  # of several calls the first counts, else the last
        self.copies = False  # where the tensor is changed in place after it has passed
        self.open = False
        self.value: Tensor | None = None

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any = None) -> None:
        if not self.open or (self.first and self.value is not None):
            return
        value = (args[0] if args else next(iter(kwargs.values()), None)) if self.of_input else output
        if isinstance(value, Tensor):
            self.value = value.clone() if self.copies else value


class Taps:
    """A peer's taps: its pooled feature, its last map, and its trunk's output."""

    def __init__(self, model: nn.Module, trace: Trace, cut: str | None) -> None:
        self.feature = self._tap(model, trace.feature_module(), Tap(of_input=True))
        self.map = self._tap(model, trace.last_map(after=cut), Tap(of_input=False))
        self.trunk = self._tap(model, cut, Tap(of_input=True, first=True))

    @staticmethod
    def _tap(model: nn.Module, name: str | None, tap: Tap) -> Tap:
        if name is not None:
            module = model.get_submodule(name)
            if tap.of_input:
                module.register_forward_pre_hook(tap, with_kwargs=True)
            else:
                module.register_forward_hook(tap, with_kwargs=True)
        return tap

    def all(self) -> tuple[Tap, Tap, Tap]:
        return self.feature, self.map, self.trunk

    def open(self) -> None:
        for tap in self.all():
            tap.open, tap.value = True, None

    def take(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return (feature, map, trunk output) and close the taps: they must not keep a graph alive."""
        feature, map_, trunk = [tap.value for tap in self.all()]
        for tap in self.all():
            tap.open, tap.value = False, None
        return _pooled(feature), _channels_first(map_, feature), trunk


def _pooled(feature: Tensor | None) -> Tensor | None:
    """Return (B, d): of a classifier at every position, (B, d, H, W) or (B, N, d), the average over them."""
    if feature is None or feature.dim() == 2:
        return feature
    return feature.mean((2, 3)) if feature.dim() == 4 else feature.mean(1)


def _channels_first(map_: Tensor | None, feature: Tensor | None) -> Tensor | None:
    """Return (B, d, H, W), also of a network that keeps its channels last."""
    if map_ is None or feature is None:
        return map_
    width = feature.shape[-1] if feature.dim() == 2 else None
    return map_.movedim(-1, 1) if map_.shape[1] != width and map_.shape[-1] == width else map_
