"""Several augmented views of each image, for a training loop of your own with its own `DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset, default_collate

from ..errors import InputError


class _Sized(Protocol):
    def __getitem__(self, index: int) -> Any: ...

    def __len__(self) -> int: ...


class MultiView(Dataset[tuple[list[Any], Any]]):
    """Apply a random transform several times to each image of a data set.

    An item is `(views, label)`, `views` a list. PyTorch's `DataLoader` turns a batch of items into
    `(views, labels)`, `views` a list of batches, which a method takes: `method(views, labels, epoch)`.

    Args:
        dataset: items are `(image, label)`, not augmented: the image is whatever `transform` takes.
        transform: random, from an image to a tensor: of torchvision (v1 or v2), of timm, or a function of yours.
        views: how many views of each image, or the method that takes them.
    """

    def __init__(self, dataset: _Sized, transform: Callable[[Any], Any], views: int | Any) -> None:
        count = views if isinstance(views, int) else getattr(views, "views", None)
        if not isinstance(count, int) or isinstance(views, bool):
            raise InputError(f"`views` is a number or a method, not {views!r}.")
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
    def collate(items: Sequence[tuple[list[Any], Any]]) -> tuple[list[Tensor], Tensor]:
        """Join items to `(views, labels)`, as PyTorch's default does; for a `DataLoader` that has its own."""
        views, labels = default_collate(list(items))
        return list(views), labels
