"""Import torchvision, healed where its wheel does not fit a CPU-only torch."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

_DEFINED: list[torch.library.Library] = []  # a definition lives as long as its library


def torchvision(name: str = "torchvision") -> Any:
    """The module `name` of torchvision.

    PyPI's wheel is built for CUDA. Beside a CPU-only torch its import dies because two operators are not there;
    defining their schemas first heals it, and only detection stays away.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DEFINED.append(library)
    for half_imported in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    return importlib.import_module(name)
