"""An image file becomes RGB pixels of one size, or a reason why it cannot."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from ..files import check_regular

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".gif", ".tif", ".tiff"})
Filter = Literal["bilinear", "box"]
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "GIF", "TIFF")


# Pillow warns of odd metadata and, up to twice its limit, of large images: the latter we refuse ourselves.
warnings.filterwarnings("ignore", module=r"PIL\.")


class Unreadable(Exception):
    """A file that is no image; the message is the reason."""


def unreadable_reason(file: Path) -> str:
    """Return why the header of a file is not that of an image, or nothing; the pixels are not read."""
    try:
        _open(file).close()
        return ""
    except Unreadable as error:
        return str(error)


def decode_image(file: Path | io.BytesIO) -> Image.Image:
    """Read an image, a file or its bytes, in RGB, turned as its camera says."""
    try:
        with _open(file) as image:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return rgb(image)
    except Unreadable:
        raise
    except Exception as error:  # a decoder may fail on hostile bytes in any way
        raise Unreadable(_reason(error)) from None


def rgb(image: Image.Image) -> Image.Image:
    """Convert any mode of Pillow to RGB: grey, palette, CMYK, and 16 bits, which Pillow itself would clip."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise Unreadable("32 bits a pixel, whose range is not known: save it with 8 or 16")
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def pixels(image: Image.Image) -> Tensor:
    """Return the pixels (C, H, W) in uint8, the channels last in memory."""
    array = np.array(image)
    return torch.from_numpy(array[..., None] if array.ndim == 2 else array).permute(2, 0, 1)


def to_image(pixels: NDArray[np.uint8]) -> Image.Image:
    """Return pixels (C, H, W) as a picture: grey for one channel, else the first three as RGB."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels[:3].transpose(1, 2, 0))


def resized(pixels: Tensor, height: int, width: int, filter: Filter = "bilinear") -> Tensor:
    """Resize bilinearly with antialiasing, as Pillow within a grey level, in half its time; or by box.

    Box is the average; one that ends in .5 goes up.
    """
    if tuple(pixels.shape[1:]) == (height, width):
        return pixels
    if filter == "box":
        means = torch.nn.functional.interpolate(pixels[None].float(), (height, width), mode="area")[0]
        return (means + 0.5).floor().byte()
    batch = pixels[None].contiguous(memory_format=torch.channels_last)
    return torch.nn.functional.interpolate(batch, (height, width), mode="bilinear", antialias=True)[0]


def centre(pixels: Tensor, short: int, height: int, width: int, filter: Filter = "bilinear") -> Tensor:
    """Resize the shorter side to `short`, then cut out the centre; with torchvision's roundings."""
    pixels = _shorten(pixels)
    tall, wide = pixels.shape[1:]
    tall, wide = (int(short * tall / wide), short) if wide <= tall else (short, int(short * wide / tall))
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    return resized(pixels, tall, wide, filter)[:, top : top + height, left : left + width].contiguous()


def _shorten(pixels: Tensor) -> Tensor:
    """Cut a strip to its centre, eight times as long as wide: resized, a longer one would grow to gigabytes."""
    sides = pixels.shape[1:]
    longest = 8 * min(sides)
    for dim, side in enumerate(sides, 1):
        if side > longest:
            pixels = pixels.narrow(dim, (side - longest) // 2, longest)
    return pixels


def _open(file: Path | io.BytesIO) -> Image.Image:
    """Read the header of an image, or refuse one of too many pixels: a small file can decode to gigabytes."""
    try:
        if isinstance(file, Path):
            check_regular(file)  # a pipe or a terminal would be waited for
        image = Image.open(file, formats=PILLOW_FORMATS)
    except Exception as error:
        raise Unreadable(_reason(error)) from None
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        image.close()
        raise Unreadable(f"more than {Image.MAX_IMAGE_PIXELS:,} pixels")
    return image


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (str(error) or type(error).__name__).splitlines()[0][:120]
