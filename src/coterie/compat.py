"""Import torchvision's CUDA wheel beside a CPU-only torch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

SYMPTOM = "operator torchvision::nms does not exist"
MISSING = ("nms", "qnms")

_schemas: list[torch.library.Library] = []  # kept alive: a Library's schemas are removed with it


def import_torchvision(name: str) -> ModuleType:
    """Import torchvision, or a package that imports it (timm).

    The wheel on PyPI is built for CUDA; its operators do not load beside a CPU-only torch, and the import fails at
    the first that is missing. With their schemas defined, networks, data sets and transforms work; only the
    operators of detection are missing.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if SYMPTOM not in str(error):
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in MISSING:
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _schemas.append(library)
    for module in [m for m in sys.modules if m.partition(".")[0] in ("torchvision", name.partition(".")[0])]:
        del sys.modules[module]  # imported in part
    return importlib.import_module(name)
