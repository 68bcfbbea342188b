"""What a device can do: which one there is here, copies to it, and in which numbers it adds up."""

from __future__ import annotations

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}
"""Kinds of devices that refuse every float64 tensor: Apple's GPUs."""


def best_device() -> str:
    """Return the device that `auto` stands for: a CUDA GPU, else Apple's, else the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def accumulator_dtype(device: torch.device) -> torch.dtype:
    """Return the format of sums over many batches on a device: float64 where it has that."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy to a device; to a CUDA GPU through pinned memory: any other copy waits for the steps before it."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    # Without pinned memory a copy that does not wait may read what the host has overwritten since.
    return tensor.to(device)


def synchronise(device: torch.device) -> None:
    """Wait until a device has done its work."""
    torch.get_device_module(device).synchronize()
