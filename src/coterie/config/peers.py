"""Build the peers of a recipe: their networks, their cut, and their initial weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .. import models
from ..errors import InputError
from ..peers.build import make_network
from ..peers.cuts import default_cut
from ..peers.init import init_from
from ..peers.net import PeerNet

if TYPE_CHECKING:
    from .recipe import Recipe

Factory = Callable[[], nn.Module]


def factories(
    recipe: Recipe, classes: int, shape: tuple[int, int, int], fresh: bool = True
) -> list[Factory | nn.Module]:
    """Return a factory or module for each peer, or one for all, for images of this shape.

    Without `fresh` no initial weights are loaded.
    """
    channels, height, width = shape
    if recipe.model_options and isinstance(recipe.objects.get("model"), nn.Module):
        raise InputError("`model_options` are for a network that is made: give `model` as a name or a function.")
    sources = [recipe.objects.get("model", recipe.model)] if isinstance(recipe.peers, int) else recipe.models
    return [
        source
        if isinstance(source, nn.Module)
        else models.factory(source, classes, channels, recipe.model_options, (height, width), fresh)
        for source in sources
    ]


def build_peers(recipe: Recipe, fresh: bool = True) -> PeerNet:
    """Build the peers for the recipe's data, which must be loaded."""
    classes = len(recipe.data.classes)
    makers = factories(recipe, classes, recipe.data.shape, fresh)
    net = _cut_into_peers(recipe, makers, torch.randn(2, *recipe.data.shape))
    if net.num_classes != classes:
        raise InputError(
            f"{recipe.model} gives {net.num_classes} classes, but the data has {classes}: "
            "let its factory take num_classes."
        )
    odd = [key for peer in net.peers for key, v in peer.state_dict().items() if not isinstance(v, Tensor)]
    if odd:
        raise InputError(
            f"{recipe.model} keeps '{odd[0]}' among its weights, which is no tensor, so that no safetensors "
            "file can hold it: take it out of its state_dict."
        )
    start_equal = recipe.init is not None or recipe.model_options.get("pretrained") or recipe.branch_noise
    if fresh and start_equal:
        if len(recipe.models) > 1:
            raise InputError(
                "Peers of different models cannot start from the same weights: leave out `init`, pretrained and "
                "`branch_noise`."
            )
        init_from(net, Path(recipe.init) if recipe.init is not None else None, recipe.branch_noise)
    return net


def _cut_into_peers(recipe: Recipe, makers: list[Factory | nn.Module], example: Tensor) -> PeerNet:
    trains = recipe.method_class.trains
    kinds = {"one network": "a single network", "branches": "branches of one network"}
    what = f"{recipe.method_class.__name__} trains {kinds.get(trains, 'whole networks')}"
    if trains != "branches" and recipe.cut not in (None, "none"):
        raise InputError(f"{what}, so there is nothing to cut: leave out `cut`.")
    if isinstance(recipe.peers, int):
        peers, cut = 1 if trains == "one network" else recipe.peers, None
        if trains == "branches" and recipe.cut != "none":
            cut = recipe.cut or default_cut(make_network(makers[0]), example)
        return PeerNet(makers[0], peers, cut, example, checkpoint_activations=recipe.checkpoint_activations)
    if trains != "networks":
        raise InputError(
            f"`peers` names models, but {what}: give `peers` a number and name the model with `model`."
        )
    return PeerNet(makers, example=example)
