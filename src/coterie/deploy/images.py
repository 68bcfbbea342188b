"""A picture of any common kind becomes an input of the network, as its data set prepared it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from ..errors import InputError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow decodes itself; EPS, for one, would be handed to another program."""

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""What counts as a picture in a folder."""

MOST_PIXELS = 100_000_000
"""Larger pictures are refused before they are decoded: a small file can claim any size."""


def load(file: Path, preprocessing: dict[str, Any]) -> Tensor:
    """Decode and prepare one picture: (channels, height, width)."""
    return prepare(decode(file, preprocessing["channels"]), preprocessing)


def decode(file: Path, channels: int) -> Image.Image:
    """An upright 8-bit picture, grey or RGB; transparency is dropped, as data sets do."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise _too_large(file, f" ({image.width} x {image.height})")
            return _eight_bit(ImageOps.exif_transpose(image), file).convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise InputError(f"{file} does not exist.") from None
    except UnidentifiedImageError:
        raise InputError(f"{file} is not a picture ({', '.join(FORMATS)} are read).") from None
    except Image.DecompressionBombError:
        raise _too_large(file) from None
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{file} cannot be read: permission denied.") from None
    except Exception as error:  # decoders raise whatever they please on damaged data
        raise InputError(f"{file} is a damaged picture: {' '.join(str(error).split()).rstrip('.')}.") from None


def prepare(image: Image.Image, preprocessing: dict[str, Any]) -> Tensor:
    """Resize, crop the centre, scale to [0, 1], normalise."""
    height, width = preprocessing["size"]
    shorter = preprocessing["resize"]
    if shorter is None:
        wanted = (width, height)
    else:
        scale = shorter / min(image.size)
        # Never smaller than the crop, whatever the rounding; a thin strip is cut to what the crop can reach.
        image = _reachable(image, width / height)
        wanted = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    if image.size != wanted:
        image = image.resize(wanted, Image.Resampling.BILINEAR)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32)).reshape(height, width, -1)
    mean, std = (torch.tensor(preprocessing[key], dtype=torch.float32) for key in ("mean", "std"))
    return ((pixels / 255 - mean) / std).permute(2, 0, 1).contiguous()


def _reachable(image: Image.Image, aspect: float) -> Image.Image:
    """A strip a thousand times as long as wide would grow to gigabytes: keep its centre, eight times the crop."""
    longest_width = round(8 * max(aspect, 1) * image.height)
    longest_height = round(8 * max(1 / aspect, 1) * image.width)
    if image.width > longest_width:
        left = (image.width - longest_width) // 2
        return image.crop((left, 0, left + longest_width, image.height))
    if image.height > longest_height:
        top = (image.height - longest_height) // 2
        return image.crop((0, top, image.width, top + longest_height))
    return image


def _eight_bit(image: Image.Image, file: Path) -> Image.Image:
    """16-bit grey scaled to 8 bits: Pillow's own conversion would clip it to white."""
    if image.mode == "F":
        raise InputError(f"{file} has floating-point pixels, whose range is unknown: save it with 8 or 16 bits.")
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64)
        if values.max(initial=0) > 255:
            values = values // 257
        return Image.fromarray(values.clip(0, 255).astype(np.uint8))
    if image.mode in ("P", "PA"):
        return image.convert("RGBA")
    return image


def _too_large(file: Path, size: str = "") -> InputError:
    return InputError(f"{file} is larger than {MOST_PIXELS:,} pixels{size}: shrink it first.")
