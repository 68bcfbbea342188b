"""A second device in Python: what torch does there is computed on the CPU, but under the rules of a GPU.

Importing this module registers the device `sim` for the whole process. It takes no float64, as Apple's GPUs, and
refuses operations that mix its tensors with those of the CPU, as every GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class _Module(_DummyBackendModule):
    """What `torch.sim` has, as `torch.mps` and `torch.cuda` have it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def synchronize(self) -> None:
        pass


_setup_privateuseone_for_python_backend("sim", _Module())
DEVICE = torch.device("sim", 0)
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
transfers: list[tuple[str, tuple[int, ...], torch.dtype]] = []
"""Direction, shape and type of every copy between host and device."""


class SimTensor(torch.Tensor):
    """A tensor of the device, whose values are those of `raw`."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> SimTensor:
        if raw.dtype == torch.float64:
            raise TypeError("Cannot create a float64 tensor on this device")
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls, raw.shape, raw.stride(), raw.storage_offset(), dtype=raw.dtype, device=DEVICE
        )

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw

    def tolist(self) -> Any:  # torch has none for subclasses
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:  # saved as its values, for they load on any device
        return self.detach().cpu().__reduce_ex__(protocol)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimTensor({self.raw})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Make new tensors of the device; operations on its tensors come here as well."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Constants(TorchFunctionMode):
    """Make a tensor of numbers on the host and copy it, as torch itself does below any dispatch mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and "device" in kwargs:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def simulated_device() -> Iterator[torch.device]:
    """Make the device usable inside."""
    with _Constants(), _Factories():
        yield DEVICE


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)]
    ours = [_is_ours(tensor) for tensor in tensors]
    target = kwargs.get("device")
    on_device = any(ours) if target is None else torch.device(target).type == "sim"
    if func in COPIES:
        _note_transfer(tensors, on_device)
    # As on a GPU, numbers (tensors without dimensions) and indices may come from the CPU.
    elif any(ours) and "index" not in func.__name__ and any(t.dim() for t in tensors if not _is_ours(t)):
        raise RuntimeError(f"Expected all tensors to be on the same device: {func}")
    if func is torch.ops.aten.copy_.default:
        on_device = isinstance(args[0], SimTensor)
    raw_kwargs = tree_map(_unwrap, kwargs)
    if target is not None:
        raw_kwargs["device"] = torch.device("cpu")
    out = func(*tree_map(_unwrap, args), **raw_kwargs)
    if not on_device:  # also a copy to the host
        return args[0] if func is torch.ops.aten.copy_.default else out
    if any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in tree_iter(out)):
        raise TypeError(f"This device has no float64: {func}")
    return return_and_correct_aliasing(func, args, kwargs, tree_map(_wrap, out))


def _is_ours(value: Any) -> bool:
    return isinstance(value, SimTensor)


def _note_transfer(tensors: list[Tensor], to_device: bool) -> None:
    source, target = tensors[-1], tensors[0]
    here = _is_ours(source)
    there = _is_ours(target) if len(tensors) > 1 else to_device
    if here != there:
        transfers.append(("to device" if there else "to host", tuple(source.shape), source.dtype))


def _unwrap(value: Any) -> Any:
    return value.raw if isinstance(value, SimTensor) else value


def _wrap(value: Any) -> Any:
    return SimTensor(value) if isinstance(value, Tensor) and not isinstance(value, SimTensor) else value
