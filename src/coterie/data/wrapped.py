"""`dataset`: any `torch.utils.data.Dataset` class, by its import path."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ..compat import import_torchvision
from ..errors import InputError, warn
from .base import Data
from .batch import SplitName
from .images import Unreadable, rgb, to_image
from .item_labels import read_labels
from .rng import seed_all
from .streaming import Streamed

__all__ = ["dataset"]

if TYPE_CHECKING:
    AnyData = Data
else:  # what an option may name; a recipe puts a Dataset into our `dataset`
    AnyData = Data | Dataset


class Item(NamedTuple):
    """What the set gave as an image, and where it stands there."""

    image: Any
    split: SplitName
    position: int


class dataset(Streamed):
    """A class of yours or of torchvision's, made twice: with `train=True` and `train=False`, or else with
    `split="train"` and `split="test"` (or "val").

    Its items are `(image, label)`. A PIL image or uint8 pixels become m views by padded crop and flip; a float
    tensor is a view that the set made itself, so that an item is read m times. `--data package.MySet
    --data.option 1` is short for `--data dataset --data.source package.MySet --data.options.option 1`.

    Args:
        source: the import path of the class.
        options: what to make it with.
        mean: of the pixels in [0, 1], for each channel or one for all.
        std: their standard deviation.
    """

    def __init__(
        self,
        source: str,
        options: dict[str, Any] | None = None,
        mean: Sequence[float] = (0.5,),
        std: Sequence[float] = (0.25,),
        **loading: Any,
    ) -> None:
        self.mean, self.std = tuple(mean), tuple(std)
        super().__init__(**loading)
        self.source, self.options = source, options or {}
        self.pair: tuple[Any, Any] | None = None

    @classmethod
    def of(cls, train: Any, test: Any, **options: Any) -> dataset:
        """Wrap two data sets that exist already; each may also be a pair of arrays (images, labels)."""
        sets = _items(train, "training"), _items(test, "test")
        tensors = isinstance(sets[0], TensorDataset)
        self = cls(f"tensors of {len(sets[0])} images" if tensors else type(sets[0]).__name__, **options)
        self.pair = sets
        return self

    def load(self) -> None:
        train, test = self.pair or _train_and_test(self.source, self.options)
        labels, test_labels = (
            read_labels(part, self.source, self.task == "multi_label") for part in (train, test)
        )
        if labels.shape[1:] != test_labels.shape[1:]:
            raise InputError(f"{self.source} has labels of other shapes for its test images.")
        several = labels.ndim == 2
        count = labels.shape[1] if several else max(labels.max(initial=0), test_labels.max(initial=0)) + 1
        names = getattr(train, "classes", None)
        self.classes = [str(name) for name in (range(count) if names is None or not len(names) else names)]
        if several and len(self.classes) != count:
            raise InputError(f"{self.source} names {len(self.classes)} classes, but its labels have {count}.")
        self.set_splits(labels, test_labels)
        self._sets = {"train": train, "val": train, "test": test}
        first = self._first_image()
        self.makes_views = _is_float(first.image)
        held = len(self.labels["val"])
        with suppress(Unreadable):  # one of its views, at times
            if self.makes_views and held and not torch.equal(self._own_view(first, 0), self._own_view(first, 1)):
                warn(
                    f"The {held} held-out images of {self.source} are augmented as its training images are, for "
                    "it makes its own views: errors of held-out images are too high."
                )
        self.shape = tuple(_pixels(first.image).shape)  # type: ignore[assignment]
        with suppress(Unreadable):
            test_image = self.fetch("test", 0).image
            if (other := tuple(_pixels(test_image).shape)) != self.shape:
                raise InputError(
                    f"Test images of {self.source} have the shape {other}, training images {self.shape}."
                )
            if _is_float(test_image) != self.makes_views:  # only uint8 is normalised, and what is not is unknown
                kinds = ["floats", "uint8"] if self.makes_views else ["uint8", "floats"]
                raise InputError(
                    f"Training images of {self.source} are {kinds[0]}, test images {kinds[1]}: give both alike."
                )
        channels = self.shape[0]
        self.mean, self.std = (tuple(v) * (channels if len(v) == 1 else 1) for v in (self.mean, self.std))
        if len(self.mean) != channels or len(self.std) != channels:
            raise InputError(f"{self.source} has {channels} channels: give as many values of `mean` and `std`.")

    def _first_image(self) -> Item:
        """Return the first training item that is an image."""
        reasons = []
        for image in range(min(100, self.train_size)):  # reading may be slow
            try:
                item = self.fetch("train", image)
                _pixels(item.image)
                return item
            except Unreadable as error:
                reasons.append(str(error))
        raise InputError(
            f"{self.source} gives no images ({reasons[0]}): its items must be (image, label), the image one of "
            "PIL's, uint8 pixels or a float tensor (C, H, W)."
        )

    def fetch(self, split: SplitName, image: int) -> Item:
        position = int(self.positions[split][image])
        try:
            with seed_all(position):  # it may draw, and must not draw from the training's generators
                return Item(self._sets[split][position][0], split, position)
        except Exception as error:  # of the user's code
            raise Unreadable(f"{type(error).__name__}: {error}"[:200]) from None

    @property
    def title(self) -> str:
        return self.source.rpartition(".")[2]

    def name(self, split: SplitName, image: int) -> str:
        return f"{self.source} {split} [{self.positions[split][image]}]"

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        pixels = _pixels(self.fetch(split, image).image)
        if pixels.dtype != torch.uint8:
            pixels = (255 * (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp_min(1e-6)).byte()
        return to_image(pixels.numpy())

    @property
    def flips_last(self) -> bool:
        return super().flips_last and not self.makes_views  # what the set made itself is not flipped

    def view(self, item: Item, numbers: NDArray[np.float64]) -> Tensor:
        if not _is_float(item.image):
            return super().view(item, numbers)
        return self._checked_shape(self._own_view(item, int(numbers[23] * 2**53)))

    def crop(self, item: Item, numbers: list[float]) -> Tensor:
        _, height, width = self.shape
        p = max(1, height // 8)
        top, left = (int(n * (2 * p + 1)) for n in numbers[20:22])
        padded = torch.nn.functional.pad(self.plain(item), (p, p, p, p))
        return padded[:, top : top + height, left : left + width]

    def plain(self, item: Item) -> Tensor:
        return self._checked_shape(_pixels(item.image))

    def _own_view(self, item: Item, seed: int) -> Tensor:
        """Return a view that the set makes itself, from this seed."""
        with seed_all(seed):
            return _pixels(self._sets[item.split][item.position][0])

    def _checked_shape(self, pixels: Tensor) -> Tensor:
        if tuple(pixels.shape) != self.shape:
            raise Unreadable(f"its shape is {tuple(pixels.shape)}, the first image's {self.shape}")
        return pixels

    def preprocessing(self) -> dict[str, Any]:
        # What a set does in its own code to make floats is unknown.
        return super().preprocessing() | ({"mean": None, "std": None} if self.makes_views else {})


def _items(part: Any, name: str) -> Any:
    """Return a Dataset, or a pair of arrays (images, labels) as one, once it is clear that it works."""
    if isinstance(part, DataLoader):
        raise InputError(f"The {name} set is a DataLoader: give its Dataset.")
    if isinstance(part, list | tuple):
        if len(part) != 2 or len({len(array) for array in part}) != 1:
            raise InputError(f"The {name} set must be a Dataset, or (images, labels) of equal length.")
        images, labels = map(torch.as_tensor, part)
        if images.dim() == 4 and images.shape[1] not in (1, 3, 4) and images.shape[3] in (1, 3, 4):
            raise InputError(f"The {name} images have the shape {tuple(images.shape)}: give them as (N, C, H, W).")
        return TensorDataset(images, labels)
    if not hasattr(part, "__len__") or not hasattr(part, "__getitem__"):
        raise InputError(f"The {name} set must be a Dataset with a length, or a pair (images, labels).")
    return part


def _train_and_test(source: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """Make the training and the test set of a class."""
    module, _, name = source.rpartition(".")
    try:
        cls = getattr(import_torchvision(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{source} cannot be imported: {error}.") from None
    parameters = inspect.signature(cls).parameters
    if "train" in parameters:
        splits: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    elif "split" in parameters:
        splits = [{"split": "train"}, {"split": "test"}, {"split": "val"}]
    else:
        raise InputError(f"{source} must take `train: bool = True` or `split: str = 'train'`, to be made twice.")
    sets: list[Any] = []
    for split in splits:
        arguments = {**options, **split}
        try:
            sets.append(cls(**arguments))
        except Exception as error:
            if split == {"split": "test"} and isinstance(error, ValueError):
                continue  # some call it 'val'
            text = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
            raise InputError(f"{source}({text}) failed: {type(error).__name__}: {error}") from None
        if not hasattr(sets[-1], "__len__"):
            raise InputError(f"{source} does not say how many items it has: give it a `__len__`.")
        if len(sets) == 2:
            break
    return sets[0], sets[1]


def _is_float(item: Any) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point()


def _pixels(item: Any) -> Tensor:
    """Return a PIL image, an array (H, W, C) or a tensor (C, H, W) as a tensor (C, H, W)."""
    if isinstance(item, Tensor):
        if item.ndim == 3 and (item.dtype == torch.uint8 or item.is_floating_point()):
            if item.is_floating_point() and not (item := item.float()).isfinite().all():
                raise Unreadable("it holds values that are not finite")
            return item
        raise Unreadable(
            f"a tensor of {item.dtype} and shape {tuple(item.shape)}, not (C, H, W) in uint8 or float"
        )
    if isinstance(item, Image.Image):
        if item.mode in ("P", "PA"):  # else their numbers would be taken for colours
            item = rgb(item)
        elif item.mode[0] in "1IF":
            item = rgb(item).convert("L")
    array = np.array(item)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        about = f" of {array.dtype} and shape {array.shape}" if isinstance(item, np.ndarray) else ""
        raise Unreadable(f"{type(item).__name__}{about} is no image")
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())
