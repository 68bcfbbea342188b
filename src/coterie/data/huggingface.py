"""`huggingface`: a set that the Hugging Face library `datasets` has saved on this machine."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError, reason
from .batch import SplitName
from .images import Unreadable, decode_image
from .pictures import Pictures
from .sampler import Indices

__all__ = ["huggingface"]

SPLITS: dict[str, SplitName] = {
    "train": "train",
    "validation": "val",
    "valid": "val",
    "val": "val",
    "test": "test",
}


class huggingface(Pictures):
    """A directory that `save_to_disk` of the Hugging Face library `datasets` wrote, with images and class labels.

    The columns are found by their types, `Image` and `ClassLabel`; the splits are train, validation and test.
    What is missing of these, and the views, are as with `folder`.

    Args:
        root: the directory.
        size: width and height of a view.
        label: the column of the labels, where several have the type.
    """

    def __init__(self, root: str = "data", size: int = 224, label: str | None = None, **options: Any) -> None:
        super().__init__(size=size, **options)
        self.root, self.label = Path(root), label

    @classmethod
    def options_for_path(cls, path: Path) -> dict[str, Any] | None:
        return {"root": str(path)} if is_saved_set(path) else None

    @property
    def title(self) -> str:
        return self.root.resolve().name

    def load(self) -> None:
        try:
            import datasets
            from datasets import ClassLabel, concatenate_datasets, load_from_disk
        except ImportError:
            raise InputError(f"{self.root} was saved by the library `datasets`: pip install datasets.") from None
        datasets.disable_progress_bars()
        try:
            saved = load_from_disk(str(self.root))
        except Exception as error:  # a damaged file may be refused in any way
            raise InputError(f"{self.root} cannot be read by `datasets` ({reason(error)}).") from None
        parts = dict(saved) if isinstance(saved, dict) else {"train": saved}
        unexpected = next((name for name in parts if name not in SPLITS), None)
        if unexpected is not None or "train" not in parts:
            problem = "no split train" if unexpected is None else f"a split '{unexpected}'"
            raise InputError(f"{self.root} has {problem}: it needs train, and may have validation and test.")
        features = parts["train"].features
        image = self._column(features, datasets.Image)
        label = self._column(features, ClassLabel) if self.label is None else self.label
        if not isinstance(features.get(label), ClassLabel):
            raise InputError(f"{self.root} has no column `{label}` of the type ClassLabel.")
        self.classes = list(features[label].names)
        splits: dict[SplitName, Indices] = {}
        first = 0
        for name, part in parts.items():
            splits[SPLITS[name]] = np.arange(first, first := first + len(part))
        columns = [part.select_columns([image, label]) for part in parts.values()]
        whole = concatenate_datasets(columns)
        labels = np.array([-1 if number is None else number for number in whole[label]], np.int64)
        # Decoded by ourselves, as any other file.
        self._images = whole.select_columns([image]).cast_column(image, datasets.Image(decode=False))
        self._image = image
        self.assign_splits(labels, splits, self.root)

    def _column(self, features: Any, kind: type) -> str:
        """Return the one column of a type."""
        names = [name for name, feature in features.items() if isinstance(feature, kind)]
        if len(names) == 1:
            return str(names[0])
        problem = "no column" if not names else f"the columns {', '.join(names)}"
        hint = ": name one by `label`" if names and kind.__name__ == "ClassLabel" else ""
        raise InputError(f"{self.root} has {problem} of the type {kind.__name__}, and needs one{hint}.")

    def original(self, image: int, split: SplitName = "train") -> Image.Image:
        cell = self._images[self.stored(split, image)][self._image]
        if cell is None:
            raise Unreadable("no image")
        return decode_image(Path(cell["path"]) if cell["bytes"] is None else io.BytesIO(cell["bytes"]))


def is_saved_set(path: Path) -> bool:
    """Tell whether `save_to_disk` wrote this directory: of a single set, or of one for each split."""
    return (path / "dataset_dict.json").is_file() or all(
        (path / name).is_file() for name in ("dataset_info.json", "state.json")
    )
