"""Commands that show what there is to choose from: methods, models, cuts."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from .calling import print_json


def methods(json: bool = False) -> None:
    """The methods and their options.

    Args:
        json: print JSON.
    """
    from ..report.tables import describe_methods, print_methods

    found = describe_methods()
    print_json(found) if json else print_methods(found)


def models(json: bool = False) -> None:
    """The networks and their parameter counts.

    Args:
        json: print JSON.
    """
    from ..report.tables import describe_models, print_models

    found = describe_models()
    print_json(found) if json else print_models(found)


def cuts(
    model: str,
    classes: int = 10,
    size: str | None = None,
    peers: int = 3,
    model_options: dict[str, Any] | None = None,
    json: bool = False,
) -> None:
    """Where a network can be cut, what is shared and what it costs.

    Args:
        model: the network; see `coterie models`.
        classes: how many.
        size: of the images, as 224 or 3x224x224; by default what the network declares, or 3x32x32.
        peers: for the costs of training.
        model_options: further options of the network.
        json: print JSON.
    """
    from ..models import factory
    from ..peers.build import example_for
    from ..report.tables import describe_cuts, print_cuts

    if min(classes, peers) < 1:
        raise InputError("--classes and --peers must be at least 1.")
    shape = _image_shape(size) if size is not None else None
    channels, sides = (shape[0], shape[1:]) if shape else (3, None)
    make = factory(model, classes, channels, model_options, sides, fresh=False)
    network = make()
    found = describe_cuts(model, network, example_for(network, shape), peers)
    print_json(found) if json else print_cuts(found)


def _image_shape(size: str) -> tuple[int, int, int]:
    """'224' or '3x224x224'."""
    try:
        sides = [int(side) for side in size.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) == 1:
        sides = [3, *sides, *sides]
    if len(sides) != 3 or not 1 <= min(sides) <= max(sides) <= 4096:
        raise InputError(f"--size is a side or CxHxW, of at most 4096, as 224 or 3x224x224, not '{size}'.")
    return sides[0], sides[1], sides[2]
