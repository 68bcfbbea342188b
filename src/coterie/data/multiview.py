"""Several augmented views of each image, for a training loop of your own with its own `DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset, default_collate

import coterie

from ..errors import InputError


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
            `functools.partial` of its class, or its name, such as "PCL".
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
    if isinstance(views, str):
        views = getattr(coterie, views, views)  # a public name: data sets know no method
    if isinstance(views, int) and not isinstance(views, bool):
        return views
    cls, options = (views.func, views.keywords) if isinstance(views, partial) else (views, {})
    count = cls.view_count(peers, options) if hasattr(cls, "view_count") else None
    if not isinstance(cls, type):
        count = getattr(views, "views", None)  # a method itself
    if not isinstance(count, int):
        raise InputError(f"`views` is a number, or a method or its class or name, such as 'PCL', not {views!r}.")
    return count
