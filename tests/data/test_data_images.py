"""Files become RGB pictures, or say why not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from coterie.data.images import Unreadable, decode_image
from tests.helpers.common import picture


def test_kinds_of_images_become_the_same_rgb(tmp_path):
    image = picture()
    pixels = np.asarray(image).astype(int)
    grey = np.asarray(image.convert("L"))
    saved = {
        "a.png": (image, {}),
        "a.jpg": (image, {"quality": 95, "subsampling": 0}),
        "a.webp": (image, {"lossless": True}),
        "alpha.png": (image.convert("RGBA"), {}),
        "palette.png": (image.quantize(256), {}),
        "cmyk.jpg": (image.convert("CMYK"), {"quality": 95, "subsampling": 0}),
        "grey.png": (image.convert("L"), {}),
        "grey16.png": (Image.fromarray(grey.astype(np.uint16) * 257), {}),
        "one.png": (image.convert("L").point(lambda v: 255 * (v > 99), "1"), {}),
    }
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: 90 degrees clockwise to set it right
    saved["turned.jpg"] = (image.rotate(90, expand=True), {"quality": 95, "subsampling": 0, "exif": exif})
    for name, (source, options) in saved.items():
        source.save(tmp_path / name, **options)
        decoded = decode_image(tmp_path / name)
        assert decoded.mode == "RGB" and decoded.size == (40, 30), name
        expected = np.repeat(grey[..., None], 3, 2).astype(int) if "grey" in name else pixels
        if name == "one.png":
            expected = np.where(grey > 99, 255, 0)[..., None]
        close = {"a.png": 0, "a.webp": 0, "alpha.png": 0, "grey.png": 0, "grey16.png": 0, "one.png": 0}.get(
            name, 12
        )
        assert np.abs(np.asarray(decoded).astype(int) - expected).mean() <= close, name


def test_pixels_of_unknown_range_are_refused_not_black(tmp_path):
    (tmp_path / "deep.ppm").write_bytes(b"P5 2 2 65535\n" + b"\x80\x00" * 4)  # 16 bits, which Pillow has in 32
    assert (np.asarray(decode_image(tmp_path / "deep.ppm")) == 128).all()
    for name, values in (("f.tif", np.full((4, 4), 0.5, np.float32)), ("i.tif", np.full((4, 4), 200, np.int32))):
        Image.fromarray(values).save(tmp_path / name)
        with pytest.raises(Unreadable, match="32 bits a pixel, whose range is not known"):
            decode_image(tmp_path / name)


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, 2000),
    change=st.binary(min_size=1, max_size=8),
    kind=st.sampled_from(["PNG", "JPEG", "WEBP"]),
)
def test_any_bytes_decode_or_say_why(tmp_path_factory, place, change, kind):
    stream = io.BytesIO()
    picture(1).save(stream, kind)
    raw = stream.getvalue()
    place %= len(raw)
    file = tmp_path_factory.getbasetemp() / "fuzzed-image"
    file.write_bytes(raw[:place] + change + raw[place + len(change) :])
    try:
        assert decode_image(file).mode == "RGB"
    except Unreadable as error:
        assert str(error) and "\n" not in str(error)
