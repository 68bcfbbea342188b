"""`dataset`: any `torch.utils.data.Dataset` class, by its import path."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from ..compat import import_torchvision
from ..errors import InputError, warn
from .augment import fork_rng
from .base import Data, Indices, Split
from .images import Unreadable, rgb
from .streaming import Loaded

__all__ = ["dataset"]

if TYPE_CHECKING:
    AnyData = Data
else:  # what an option may name; a recipe puts a Dataset into our `dataset`
    AnyData = Data | Dataset


class dataset(Loaded):
    """A class of yours or of torchvision's, made twice: with `train=True` and `train=False`, or else with
    `split="train"` and `split="test"` (or "val").

    Its items are `(image, label)`. A PIL image or uint8 pixels become m views by padded crop and flip; a float
    tensor is a view that the set made itself, so that an item is asked for m times. `--data package.MySet
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

    def load(self) -> None:
        train, test = _both(self.source, self.options)
        labels = {"train": _labels(train, self.source), "test": _labels(test, self.source)}
        last = int(max(found.max(initial=0) for found in labels.values()))
        names = getattr(train, "classes", None)
        self.classes = [str(name) for name in (range(last + 1) if names is None or not len(names) else names)]
        self.labels = {"train": labels["train"], "test": labels["test"]}
        self.check_labels("train")
        self.check_labels("test")
        chosen, held = self.choose(labels["train"])
        self._sets = {"train": train, "val": train, "test": test}
        self._places = {"train": chosen, "val": held, "test": np.arange(len(labels["test"]))}
        self.labels |= {"train": labels["train"][chosen], "val": labels["train"][held]}
        image, where = self._first()
        self.makes_views = _is_float(image)
        if self.makes_views and len(held) and not torch.equal(self._again(*where, 0), self._again(*where, 1)):
            warn(
                f"The {len(held)} held-out images of {self.source} are augmented as its training images are, for "
                "it makes its own views: errors of held-out images are too high."
            )
        self.shape = tuple(_pixels(image).shape)  # type: ignore[assignment]
        channels = self.shape[0]
        self.mean, self.std = (tuple(v) * (channels if len(v) == 1 else 1) for v in (self.mean, self.std))
        if len(self.mean) != channels or len(self.std) != channels:
            raise InputError(f"{self.source} has {channels} channels: give as many --data.mean and --data.std.")

    def _first(self) -> tuple[Any, tuple[Split, int]]:
        """The first training image that is one."""
        reasons = []
        for image in range(min(100, self.train_size)):  # reading may be slow
            try:
                found = self.fetch("train", image)
                _pixels(found[0])
                return found
            except Unreadable as error:
                reasons.append(str(error))
        raise InputError(
            f"{self.source} gives no images ({reasons[0]}): its items must be (image, label), the image one of "
            "PIL's, uint8 pixels or a float tensor (C, H, W)."
        )

    def fetch(self, split: Split, image: int) -> tuple[Any, tuple[Split, int]]:
        place = int(self._places[split][image])
        try:
            with seed_all(place):  # it may draw, and the training's numbers are not its own
                return self._sets[split][place][0], (split, place)
        except Exception as error:  # theirs, whatever it is
            raise Unreadable(f"{type(error).__name__}: {error}"[:200]) from None

    @property
    def title(self) -> str:
        return self.source.rpartition(".")[2]

    def name(self, split: Split, image: int) -> str:
        return f"{self.source} {split} [{self._places[split][image]}]"

    def original(self, image: int, split: Split = "train") -> Image.Image:
        pixels = _pixels(self.fetch(split, image)[0])
        if pixels.dtype != torch.uint8:
            pixels = (255 * (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp_min(1e-6)).byte()
        array = pixels.permute(1, 2, 0).numpy()
        return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array[..., :3])

    def view(self, image: tuple[Any, tuple[Split, int]], numbers: NDArray[np.float64]) -> Tensor:
        item, (split, place) = image
        if _is_float(item):
            return self._checked(self._again(split, place, int(numbers[23] * 2**53)))
        pixels = self._checked(_pixels(item))
        _, height, width = self.shape
        if self.augment.crops:
            p = max(1, height // 8)
            top, left = (int(n * (2 * p + 1)) for n in numbers[20:22])
            pixels = torch.nn.functional.pad(pixels, (p, p, p, p))[:, top : top + height, left : left + width]
        if self.augment.flips and numbers[22] < 0.5:
            pixels = pixels.flip(-1)
        return self.augment(pixels, float(numbers[23]))

    def _again(self, split: Split, place: int, seed: int) -> Tensor:
        """A view that the set makes itself, by these draws."""
        with seed_all(seed):
            return _pixels(self._sets[split][place][0])

    def plain(self, image: tuple[Any, tuple[Split, int]]) -> Tensor:
        return self._checked(_pixels(image[0]))

    def preprocessing(self) -> dict[str, Any]:
        found = super().preprocessing()
        # What a set does in its own code to make floats cannot be told to others.
        return {**found, "mean": None, "std": None} if self.makes_views else found

    def _checked(self, pixels: Tensor) -> Tensor:
        if tuple(pixels.shape) != self.shape:
            raise Unreadable(f"its shape is {tuple(pixels.shape)}, the first image's {self.shape}")
        return pixels


@contextmanager
def seed_all(seed: int) -> Iterator[None]:
    """Whatever a user's own code draws from, torch, NumPy or Python, is seeded, and left as it was."""
    numpy, python = np.random.get_state(), random.getstate()
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        with fork_rng(seed):
            yield
    finally:
        np.random.set_state(numpy)
        random.setstate(python)


def _both(source: str, options: dict[str, Any]) -> tuple[Dataset[Any], Dataset[Any]]:
    """The training and the test set of a class."""
    module, _, name = source.rpartition(".")
    try:
        cls = getattr(import_torchvision(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{source} cannot be imported: {error}.") from None
    taken = inspect.signature(cls).parameters
    if "train" in taken:
        ways: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    elif "split" in taken:
        ways = [{"split": "train"}, {"split": "test"}, {"split": "val"}]
    else:
        raise InputError(f"{source} must take `train: bool = True` or `split: str = 'train'`, to be made twice.")
    given = {key: value for key, value in options.items() if key not in ways[0]}
    made: list[Dataset[Any]] = []
    for way in ways:
        try:
            made.append(cls(**given, **way))
        except Exception as error:
            if way == {"split": "test"} and isinstance(error, ValueError):
                continue  # some call it 'val'
            shown = ", ".join(f"{k}={v!r}" for k, v in {**given, **way}.items())
            raise InputError(f"{source}({shown}) failed: {type(error).__name__}: {error}") from None
        if not hasattr(made[-1], "__len__"):
            raise InputError(f"{source} does not say how many items it has: give it a `__len__`.")
        if len(made) == 2:
            break
    return made[0], made[1]


def _labels(items: Any, source: str) -> Indices:
    """From `targets` or `labels`, as torchvision's sets have them; else every item is read once."""
    found = next((getattr(items, name) for name in ("targets", "labels") if hasattr(items, name)), None)
    if found is None or len(found) != len(items):
        found = []
        for i in range(len(items)):
            try:
                found.append(items[i][1])
            except Exception as error:  # theirs, whatever it is
                raise InputError(f"{source}: item {i} gives no label ({type(error).__name__}: {error}).") from None
    if not len(found):
        raise InputError(f"{source} is empty.")
    found = found.tolist() if isinstance(found, (Tensor, np.ndarray)) else found
    return np.array([_number(label, source) for label in found], np.int64)


def _number(label: Any, source: str) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a name, a vector
        number = None
    if number is None or number != label or abs(number) >= 2**63:
        raise InputError(f"{source} has the label {repr(label)[:60]}: labels must be the numbers of classes.")
    return number


def _is_float(item: Any) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point()


def _pixels(item: Any) -> Tensor:
    """A PIL image, an array (H, W, C) or a tensor (C, H, W) as a tensor (C, H, W)."""
    if isinstance(item, Tensor):
        if item.ndim == 3 and (item.dtype == torch.uint8 or item.is_floating_point()):
            return item.float() if item.is_floating_point() else item
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
