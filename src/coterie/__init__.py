"""Coterie: train the network you will deploy better, without a teacher, by giving it peers."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`PeerNet`, `MeanPeers`, `Method` and every method, imported at first use: torch is slow to import."""
    if not name[0].isupper():
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    from .mean import MeanPeers
    from .methods import Method, available
    from .peers import PeerNet

    found = {"PeerNet": PeerNet, "MeanPeers": MeanPeers, "Method": Method, **available()}
    if name in found:
        return found[name]
    raise AttributeError(f"module 'coterie' has no attribute '{name}'; it has {', '.join(found)}")
