"""Several augmented views of each image, for a training loop of your own with its own `DataLoader`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from ..errors import InputError, reason, unknown


class _Sized(Protocol):
    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


class MultiView(Dataset[tuple[list[Any], Any]]):
    """Apply a random transform several times to each image of a data set.

    An item is `(views, label)`, `views` a list. PyTorch's `DataLoader` turns a batch of items into
    `(views, labels)`, `views` a list of batches, which a method takes: `method(views, labels, epoch)`. It needs no
    `collate_fn`; `MultiView.collate` is for a loader that has another default.

    Args:
        dataset: items are `(image, label)`, not augmented: the image is whatever `transform` takes. A label may be
            a class number, probabilities or a dictionary of tensors.
        transform: random, from an image to a tensor: of torchvision (v1 or v2), of timm, or a function of yours.
            It must leave the image itself as it is.
        views: how many views of each image; or the method that takes them: itself, its class, a
            `functools.partial` of its class, or its name, such as "PCL" or "my_package.MyMethod".
        peers: how many peers a method has that is given by its class or name; otherwise not used.
    """

    def __init__(
        self, dataset: _Sized, transform: Callable[[Any], Any], views: int | str | Any, peers: int = 3
    ) -> None:
        count = _count(views, peers)
        if count < 1:
            raise InputError(f"`views` must be at least 1, not {count}.")
        if not callable(transform):
            raise InputError("`transform` must be callable: it makes a view of an image.")
        self.dataset, self.transform, self.views = dataset, transform, count

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[list[Any], Any]:
        item = self.dataset[index]
        if not isinstance(item, Sequence) or len(item) != 2:
            raise InputError("`MultiView` needs items (image, label); wrap your dataset so that it gives pairs.")
        image, label = item
        return [self.transform(image) for _ in range(self.views)], label

    @staticmethod
    def collate(items: Sequence[tuple[list[Any], Any]]) -> tuple[list[Tensor], Any]:
        """Join items to `(views, labels)`, as PyTorch's default does; for a `DataLoader` that has its own."""
        views, labels = default_collate(list(items))
        return list(views), labels


def _count(views: Any, peers: int) -> int:
    """Return the number of views, which is given or which a method takes."""
    sentence = f"`views` is a number or a method, not {views!r}"
    if isinstance(views, str):
        views = _find_method(views, sentence)
    count = views if isinstance(views, int) else getattr(views, "views", None)
    if isinstance(views, type | partial) and not isinstance(count, int):
        count = _views_of_class(views, peers)
    if not isinstance(count, int) or isinstance(views, bool):
        raise InputError(f"{sentence}.")
    return count


def _find_method(name: str, sentence: str) -> Any:
    """Return the class of a method by its name or import path.

    By name at run time: data sets know no method, and this one only what it is asked for.
    """
    module, _, attribute = name.rpartition(".")
    if module:
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"{sentence}: it cannot be imported: {reason(error)}.") from None
    methods = importlib.import_module("coterie.methods").available()
    if name not in methods:
        raise InputError(f"{sentence}: {unknown('method', name, methods)}")
    return methods[name]


def _views_of_class(method: Callable[..., Any], peers: int) -> Any:
    """Ask a method on peers of a tiny network: only an instance says how many views it takes."""
    net_class = importlib.import_module("coterie").PeerNet
    try:
        with torch.random.fork_rng(devices=[]):
            net = net_class(_tiny_network, peers, "1", torch.zeros(2, 1, 4, 4))
            # Views do not depend on what has no default, such as a teacher.
            _, *options = inspect.signature(method).parameters.values()
            instance = method(net, **{o.name: None for o in options if o.default is o.empty})
    except InputError:
        raise
    except Exception as error:  # whatever a user's method may raise
        raise InputError(f"`views`: pass the method itself; its class alone fails: {reason(error)}.") from error
    return getattr(instance, "views", None)


def _tiny_network() -> nn.Module:
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 2, 1), pooled, nn.Linear(2, 2))
