"""Stop the construction of a network that is larger than the file of its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from ..errors import InputError

SPARE = {"modules": 10_000, "tensors": 1_000, "numbers": 10_000_000}
"""What a network may have besides: layers without weights, and layers that are replaced while it is built."""
PER_WEIGHT = {"modules": 20, "tensors": 2, "numbers": 2}


@contextmanager
def bounded_by(file: Path, weights: Mapping[str, Tensor], networks: int = 1) -> Iterator[None]:
    """Refuse networks, inside this context, with many times the parameters that `file` has weights for.

    The options of a network come from the file: a depth of a million would be built for hours before it is seen
    that the weights do not fit. Torch calls us for each part as it is added, before its memory is used.
    """
    sizes = {
        "modules": len(weights),
        "tensors": len(weights),
        "numbers": sum(weight.numel() for weight in weights.values()),
    }
    left = {kind: SPARE[kind] + PER_WEIGHT[kind] * networks * size for kind, size in sizes.items()}

    def use(kind: str, count: int = 1) -> None:
        left[kind] -= count
        if left[kind] < 0:
            raise InputError(f"{file} names a network that is many times larger than its weights: do not use it.")

    def count_module(module: nn.Module, name: str, part: Any) -> None:
        use("modules")

    def count_parameter(module: nn.Module, name: str, parameter: Any) -> None:
        if parameter is not None:
            use("tensors")
            use("numbers", 0 if nn.parameter.is_lazy(parameter) else parameter.numel())

    hooks = [
        register_module_module_registration_hook(count_module),
        register_module_parameter_registration_hook(count_parameter),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
