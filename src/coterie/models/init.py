"""The initial weights of our own networks."""

from __future__ import annotations

from torch import nn


def initialise(network: nn.Module) -> None:
    """Initialise convolutions by Kaiming normal (fan out), batch-norm weights by 1, all biases of both by 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
