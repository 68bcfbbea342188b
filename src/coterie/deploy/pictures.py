"""A picture becomes an input of the network, by the steps with which its data set read the test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from ..data import images
from ..data.batch import normalise
from ..errors import InputError


def load_picture(file: Path, preprocessing: dict[str, Any]) -> Tensor:
    """Decode and prepare one picture: (channels, height, width)."""
    return prepare_picture(decode_picture(file, preprocessing["channels"]), preprocessing)


def decode_picture(file: Path, channels: int) -> Image.Image:
    """Return an upright 8-bit picture, grey or RGB."""
    try:
        image = images.decode_image(file)
    except images.Unreadable as reason:
        raise InputError(f"{file} cannot be read as a picture: {str(reason).rstrip('.')}.") from None
    return image.convert("L") if channels == 1 else image


def prepare_picture(image: Image.Image, preprocessing: dict[str, Any]) -> Tensor:
    """Resize, cut out the centre, normalise."""
    pixels, short = images.pixels(image), preprocessing["resize"]
    height, width = preprocessing["size"]
    filter = preprocessing.get("filter", "bilinear")  # older files do not say it
    pixels = (
        images.resized(pixels, height, width, filter)
        if short is None
        else images.centre(pixels, short, height, width, filter)
    )
    return normalise(pixels, preprocessing["mean"], preprocessing["std"])
