"""Read a pickle of plain values and byte arrays without running anything it names."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError


class _Array:
    """Stands where the pickle wants a numpy array made: keeps what it is given, and makes it only if harmless."""

    def __init__(self, *given: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        _, shape, kind, fortran, raw = self.state
        if (
            not isinstance(kind, _Kind)
            or kind.code not in ("u1", b"u1")
            or fortran
            or len(raw) != math.prod(shape)
        ):
            raise pickle.UnpicklingError("an array that is not plain bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape)


class _Kind:
    """Stands for a numpy dtype."""

    def __init__(self, code: Any, *flags: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


# The pure Python unpickler: a pickle cannot make it reserve memory that the file does not fill.
class _Restricted(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy":
            if name in ("_reconstruct", "ndarray"):
                return _Array
            if name == "dtype":
                return _Kind
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def unpickle(file: Path) -> dict[str, Any]:
    """The dictionary in a file of CIFAR's python layout; arrays must be bytes."""
    try:
        with file.open("rb") as stream:
            found = _Restricted(stream, encoding="bytes").load()
        if not isinstance(found, dict):
            raise pickle.UnpicklingError("it holds no dictionary")
        return {
            key.decode() if isinstance(key, bytes) else str(key): value.bytes_array()
            if isinstance(value, _Array)
            else value
            for key, value in found.items()
        }
    except Exception as error:  # whatever a hostile or broken pickle provokes
        reason = str(error) or type(error).__name__
        raise InputError(f"{file} is not a CIFAR file ({reason[:200]}): fetch it again.") from None
