"""An image file becomes RGB pixels, whatever its format; one that cannot says why."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".gif", ".tif", ".tiff"})
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "GIF", "TIFF")


# Pillow warns of odd metadata and, up to twice its limit, of large images: the latter we refuse ourselves.
warnings.filterwarnings("ignore", module=r"PIL\.")


class Unreadable(Exception):
    """A file that is no image; the message is the reason."""


def header(file: Path) -> tuple[int, int]:
    """Width and height, from the first bytes alone; an image too large to be honest is refused here."""
    with _guarded(file) as image:
        return image.size


def decode(file: Path) -> Image.Image:
    """The image in RGB, turned as its camera says."""
    try:
        with _guarded(file) as image:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return rgb(image)
    except Unreadable:
        raise
    except Exception as error:  # a decoder may fail on hostile bytes in any way
        raise Unreadable(_reason(error)) from None


def rgb(image: Image.Image) -> Image.Image:
    """Any mode of Pillow as RGB: grey, palette, CMYK, and 16 bits, which Pillow itself would clip at 255."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        image = Image.fromarray((values.clip(0, 65535) >> 8).astype(np.uint8))
    elif image.mode == "F":
        image = Image.fromarray(np.nan_to_num(np.asarray(image)).clip(0, 255).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _guarded(file: Path) -> Image.Image:
    try:
        image = Image.open(file, formats=FORMATS)
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
