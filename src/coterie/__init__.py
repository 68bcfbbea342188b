"""Coterie: train the network you will deploy better, without a teacher, by giving it peers."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`PeerNet`, `Method`, every method and parts of recipes, imported at first use: torch is slow to import."""
    if not name[0].isupper():
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    from .config.schedule import Cosine, Steps
    from .data.mix import CutMix, MixUp
    from .methods import Method, available
    from .methods.losses import CrossEntropy
    from .peers.ema import MeanPeers
    from .peers.net import PeerNet

    parts = (PeerNet, MeanPeers, Method, CutMix, MixUp, CrossEntropy, Steps, Cosine)
    public = {part.__name__: part for part in parts} | available()
    if name in public:
        return public[name]
    raise AttributeError(f"module 'coterie' has no attribute '{name}'; it has {', '.join(public)}")
