"""Mixed precision and gradients: autocast of the forward pass, loss scaling, gradient clipping."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..config.recipe import PrecisionName


class Precision:
    """Autocast of the forward pass, loss scaling and gradient clipping; weights stay float32.

    Args:
        device: the device to compute on.
        format: the number format of the forward pass. With float16 the loss is scaled, and a step whose gradients
            overflow is skipped. 'auto' is replaced by the device's choice.
        clip_norm: the largest norm of all gradients together.
    """

    def __init__(self, device: torch.device, format: PrecisionName = "32", clip_norm: float | None = None) -> None:
        self.device, self.format, self.clip_norm = device, choose_format(format, device), clip_norm
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.format == "fp16")

    def autocast(self) -> torch.autocast:
        dtype = torch.float16 if self.format == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=self.format != "32")

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take an optimiser step; return False if it was skipped because gradients overflowed."""
        if self.clip_norm is not None:
            self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(
                [p for g in optimizer.param_groups for p in g["params"]], self.clip_norm
            )
        scale = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()
        return self.scaler.get_scale() >= scale  # it falls only after an overflow

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.scaler.load_state_dict(state)


def choose_format(format: PrecisionName, device: torch.device) -> PrecisionName:
    """Replace 'auto' by bf16 on CUDA GPUs that compute in it, and by 32 elsewhere."""
    if format != "auto":
        return format
    if device.type != "cuda":
        return "32"
    with torch.cuda.device(device):
        # Emulated bfloat16, which older GPUs have, is slower than float32.
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "32"
