"""The device that the tests run on: COTERIE_TEST_DEVICE, by default the CPU."""

from __future__ import annotations

import os

import torch

NAME = os.environ.get("COTERIE_TEST_DEVICE", "cpu")
OPTION: dict[str, str] = {} if NAME == "cpu" else {"device": NAME}
"""The option of recipes that are trained in this process."""
HAS_FLOAT64 = not NAME.startswith("mps")
if NAME == "cpu":
    os.environ["CUDA_VISIBLE_DEVICES"] = (
        ""  # `--device auto` is the CPU too, here and in processes started from here
    )
else:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what deterministic algorithms need


def find_device() -> torch.device:
    """Return the device to test; raise a ValueError, in one sentence, if torch does not find it here."""
    try:
        device = torch.device(NAME)
        count = torch.get_device_module(device).device_count()
    except (AttributeError, RuntimeError):
        count = 0
    if not count or (device.index or 0) >= count:
        raise ValueError(
            f"COTERIE_TEST_DEVICE is '{NAME}', but torch {torch.__version__} finds no such device here: unset it, "
            "or see what `coterie doctor` says."
        )
    return device


def with_device(arguments: list[str]) -> list[str]:
    """Add the device to a command that trains and names none."""
    if NAME == "cpu" or not arguments or arguments[0] not in ("train", "compare") or "--device" in arguments:
        return arguments
    return [*arguments, "--device", NAME]
