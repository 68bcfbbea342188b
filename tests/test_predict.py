"""Predict: the exported file alone labels real pictures; bad ones are named, and nothing else stops."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coterie import models
from coterie.deploy import images
from coterie.deploy.formats import load, writer
from coterie.errors import InputError
from coterie.predict import disagreement, find, predict
from coterie.run import restored

from .conftest import coterie, refused, shared_data
from .deployables import metadata


@pytest.fixture(scope="session")
def digits(pcl_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first test digits as pictures, in a folder with folders."""
    folder = tmp_path_factory.mktemp("digits")
    recipe, _, _ = restored(pcl_run)
    for i in range(20):
        file = folder / ("even" if i % 2 == 0 else "odd") / f"{i:02}.png"
        file.parent.mkdir(exist_ok=True)
        recipe.data.original(i, "test").save(file)
    return folder


def test_a_folder_gets_the_probabilities_that_evaluate_sees(pcl_run: Path, shipped: Path, digits: Path) -> None:
    result = coterie("predict", shipped / "ensemble.onnx", digits, "--json", "--top", 3, "--batch", 7)
    assert result.returncode == 0, result.stderr
    found = {Path(row["image"]).name: row for row in json.loads(result.stdout)}
    assert len(found) == 20
    recipe, method, _ = restored(pcl_run)
    method.eval()
    with torch.no_grad():
        logits = method.logits(next(recipe.data.test_batches(20))[0])
    t = load(shipped / "ensemble.onnx").metadata.temperature
    p = (logits["ensemble"] / t).softmax(1)
    peers = torch.stack([logits[f"mean{j}"] for j in (1, 2, 3)]).div(t).softmax(-1)
    for i in range(20):
        row = found[f"{i:02}.png"]
        values, index = p[i].topk(3)
        assert [guess["label"] for guess in row["top"]] == [str(int(k)) for k in index]
        torch.testing.assert_close(
            torch.tensor([guess["probability"] for guess in row["top"]]), values, atol=1e-4, rtol=1e-3
        )
        apart = np.mean([float((peers[a, i] - peers[b, i]).norm()) for a, b in ((0, 1), (0, 2), (1, 2))])
        assert row["disagreement"] == pytest.approx(apart, abs=1e-4)


def test_table_csv_and_names_from_the_standard_input(shipped: Path, digits: Path, tmp_path: Path) -> None:
    file = shipped / "student.safetensors"
    table = coterie("predict", file, digits / "even", "--top", 2)
    lines = table.stdout.splitlines()
    assert len(lines) == 10 and all(line.count(" %") == 2 and "apart" not in line for line in lines)

    listed = subprocess.run(
        [sys.executable, "-m", "coterie", "predict", str(file), "-", "--csv", "--top", "2"],
        input=f"{digits / 'odd'}\n\n{digits / 'even' / '00.png'}\n",
        capture_output=True,
        text=True,
    )
    rows = list(csv.DictReader(io.StringIO(listed.stdout)))
    assert [Path(row["image"]).name for row in rows] == [*(f"{i:02}.png" for i in range(1, 20, 2)), "00.png"]
    assert float(rows[0]["probability1"]) >= float(rows[0]["probability2"]) >= 0
    assert list(rows[0]) == ["image", "label1", "probability1", "label2", "probability2"]


def test_bad_pictures_are_counted_and_the_others_go_on(shipped: Path, digits: Path, tmp_path: Path) -> None:
    good = (digits / "even" / "00.png").read_bytes()
    (tmp_path / "a.png").write_bytes(good)
    (tmp_path / "b.jpg").write_text("This is text.")
    (tmp_path / "c.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "d.png").write_bytes(b"")
    (tmp_path / "e.png").write_bytes(good)
    (tmp_path / "notes.txt").write_text("not counted")
    result = coterie("predict", shipped / "student.safetensors", tmp_path, "--json")
    assert result.returncode == 0
    assert [Path(row["image"]).name for row in json.loads(result.stdout)] == ["a.png", "e.png"]
    assert "b.jpg is not a picture" in result.stderr and "c.png is a damaged picture" in result.stderr
    assert "2 labelled, 3 skipped" in result.stderr and "Traceback" not in result.stderr
    sentence = refused("predict", shipped / "student.safetensors", tmp_path / "b.jpg")
    assert sentence.endswith("b.jpg is not a picture (BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP are read).")
    with pytest.raises(InputError, match="does not exist"):
        images.decode(tmp_path / "none.png", 1)


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for side in (20_000, 12_000, 10_001):  # Pillow refuses the first, warns of the others
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        body = chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
        (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)
        with pytest.raises(InputError, match="larger than 100,000,000 pixels"):
            images.decode(tmp_path / "bomb.png", 3)


def test_pictures_of_every_kind_look_alike(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (12, 9), dtype=np.uint8)
    plain = Image.fromarray(grey)
    plain.save(tmp_path / "grey.png")
    plain.convert("RGB").save(tmp_path / "rgb.bmp")
    rgba = plain.convert("RGBA")
    rgba.putalpha(Image.fromarray(255 - grey))
    rgba.save(tmp_path / "rgba.png")
    plain.convert("P").save(tmp_path / "palette.gif")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "sixteen.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "sixteen.tiff")
    plain.save(tmp_path / "lossless.webp", lossless=True)
    for file in sorted(tmp_path.iterdir()):
        for channels in (1, 3):
            found = np.asarray(images.decode(file, channels))
            expected = grey if channels == 1 else np.stack([grey] * 3, axis=-1)
            np.testing.assert_array_equal(found, expected, err_msg=file.name)
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(InputError, match="floating-point"):
        images.decode(tmp_path / "float.tiff", 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_camera_s_orientation_is_undone(orientation: int, tmp_path: Path) -> None:
    upright = np.zeros((6, 4), np.uint8)
    upright[0, 0], upright[0, 3], upright[5, 0] = 255, 160, 80
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "o.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(images.decode(tmp_path / "o.png", 1)), upright)


def test_preparing_is_torchvisions_resize_crop_and_normalise(tmp_path: Path) -> None:
    """Against the arithmetic written out: shorter side, centre, (x/255 - mean)/std."""
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 256, (90, 130, 3), dtype=np.uint8))
    how = {"channels": 3, "size": [32, 24], "resize": 45, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.5]}
    found = images.prepare(picture, how)
    small = np.asarray(picture.resize((65, 45), Image.Resampling.BILINEAR), dtype=np.float64)
    centre = small[6 : 6 + 32, 20 : 20 + 24] / 255
    expected = ((centre - np.array(how["mean"])) / np.array(how["std"])).transpose(2, 0, 1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    straight = images.prepare(picture, {**how, "resize": None})
    assert straight.shape == (3, 32, 24)
    squashed = np.asarray(picture.resize((24, 32), Image.Resampling.BILINEAR), dtype=np.float64) / 255
    np.testing.assert_allclose(straight[0].numpy(), (squashed[..., 0] - 0.5) / 0.2, atol=1e-5)
    strip = Image.new("RGB", (1, 60_000))  # would grow to 45 x 2,700,000
    assert images.prepare(strip, how).shape == (3, 32, 24)


def test_only_a_batch_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = models.factory("resnet8", 4, 1)()
    writer(network, torch.randn(2, 1, 8, 8), "safetensors")(tmp_path / "m", metadata("resnet8", 4, (1, 8, 8)))
    loaded = load(tmp_path / "m")
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    opened = 0
    decode = images.load

    def counting(file: Path, how: dict[str, object]) -> torch.Tensor:
        nonlocal opened
        opened += 1
        return decode(file, how)

    monkeypatch.setattr(images, "load", counting)
    stream = predict(loaded, (str(tmp_path / "a.png") for _ in range(5000)), batch=10)
    for _ in range(11):
        next(stream)
    assert opened == 20
    assert find([str(tmp_path)]).__next__() == tmp_path / "a.png"


def test_disagreement() -> None:
    far = torch.tensor([[[100.0, 0.0], [0.0, 100.0]], [[3.0, 1.0], [3.0, 1.0]]])
    torch.testing.assert_close(disagreement(far), torch.tensor([2**0.5, 0.0]))
    assert disagreement(torch.randn(3, 1, 4)).tolist() == [0, 0, 0]


def test_photographs(tmp_path: Path) -> None:
    """Real photographs, by a network for photographs with untrained weights, against it called directly."""
    with tarfile.open(shared_data("photos10.tar")) as archive:
        members = [m for m in archive.getmembers() if "/val/" in m.name and m.isfile()][::25]
        archive.extractall(tmp_path, members, filter="data")
    network = models.factory("resnet8", 10, 3)().eval()
    about = metadata("resnet8", 10, (3, 224, 224))
    about.input["resize"] = 256
    writer(network, torch.randn(2, 3, 224, 224), "safetensors")(tmp_path / "m.safetensors", about)
    result = coterie("predict", tmp_path / "m.safetensors", tmp_path / "photos10", "--json", "--top", 1)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert len(rows) == len(members) >= 10
    for row in rows[:5]:
        picture = Image.open(row["image"]).convert("RGB")
        scale = 256 / min(picture.size)
        picture = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.BILINEAR)
        left, top = (picture.width - 224) // 2, (picture.height - 224) // 2
        pixels = np.asarray(picture, dtype=np.float32)[top : top + 224, left : left + 224] / 255
        x = torch.from_numpy(((pixels - 0.5) / 0.25).transpose(2, 0, 1)[None])
        with torch.no_grad():
            p = network(x).softmax(1)[0]
        assert row["top"][0]["label"] == f"class {int(p.argmax())}"
        assert row["top"][0]["probability"] == pytest.approx(p.max().item(), abs=1e-5)
