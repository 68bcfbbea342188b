"""Coterie: train the network you will deploy better, without a teacher, by giving it peers."""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and len(sys.path) > 1:
    # Run as `python -m coterie`, which puts the working directory before all modules: files that lie beside
    # photographs, such as typing.py, would be run. Before the first import, so without `from __future__`.
    del sys.path[0]

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config.schedule import Cosine, Steps
    from .data.base import Data
    from .data.mix import CutMix, MixUp
    from .data.multiview import MultiView
    from .errors import InputError
    from .experiments.compare import Comparison, compare
    from .experiments.run import Run, load, train
    from .methods.base import Method
    from .methods.baseline import Baseline
    from .methods.cl import CL
    from .methods.cross_entropy import CrossEntropy
    from .methods.dml import DML
    from .methods.ffl import FFL
    from .methods.kd import KD
    from .methods.kdcl import KDCL
    from .methods.mcl import MCL
    from .methods.okddip import OKDDip
    from .methods.one import ONE
    from .methods.own_mean import OwnMean
    from .methods.pcl import PCL
    from .peers.ema import MeanPeers
    from .peers.net import PeerNet

__version__ = "0.2.0"

__all__ = [
    "CL",
    "DML",
    "FFL",
    "KD",
    "KDCL",
    "MCL",
    "ONE",
    "PCL",
    "Baseline",
    "Comparison",
    "Cosine",
    "CrossEntropy",
    "CutMix",
    "Data",
    "InputError",
    "MeanPeers",
    "Method",
    "MixUp",
    "MultiView",
    "OKDDip",
    "OwnMean",
    "PeerNet",
    "Run",
    "Steps",
    "compare",
    "load",
    "train",
]

_MODULES = {
    "Comparison": "experiments.compare",
    "Cosine": "config.schedule",
    "CrossEntropy": "methods.cross_entropy",
    "CutMix": "data.mix",
    "Data": "data.base",
    "InputError": "errors",
    "MeanPeers": "peers.ema",
    "Method": "methods.base",
    "MixUp": "data.mix",
    "MultiView": "data.multiview",
    "PeerNet": "peers.net",
    "Run": "experiments.run",
    "Steps": "config.schedule",
    "compare": "experiments.compare",
    "load": "experiments.run",
    "train": "experiments.run",
}
"""The module of each public name; methods are found in their folder."""


def __getattr__(name: str) -> Any:
    """Import a public name at first use: torch is slow to import."""
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    if name[0].isupper():
        from .methods import available

        if name in (methods := available()):
            return methods[name]
    raise AttributeError(f"module 'coterie' has no attribute '{name}'; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
