"""Predict: the exported file alone labels real pictures; bad ones are named, and nothing else stops."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from coterie import models
from coterie.data.folder import folder
from coterie.data.images import decode_image
from coterie.data.wrapped import dataset
from coterie.deploy import pictures
from coterie.deploy.export import export_run
from coterie.deploy.exported import open_exported
from coterie.deploy.formats import make_writer
from coterie.deploy.predict import disagreement, list_pictures, predict_pictures
from coterie.errors import InputError
from coterie.runs.rebuild import restored
from tests.helpers.common import coterie, not_on_windows, printed, refused
from tests.helpers.deployables import metadata
from tests.helpers.photographs import photographs


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
    rows_by_name = {Path(row["image"]).name: row for row in json.loads(result.stdout)}
    assert len(rows_by_name) == 20
    recipe, method, _ = restored(pcl_run)
    method.eval()
    with torch.no_grad():
        logits = method.logits(next(recipe.data.test_batches(20))[0])
    t = open_exported(shipped / "ensemble.onnx").metadata.temperature
    p = (logits["ensemble"] / t).softmax(1)
    peers = torch.stack([logits[f"mean{j}"] for j in (1, 2, 3)]).div(t).softmax(-1)
    for i in range(20):
        row = rows_by_name[f"{i:02}.png"]
        values, index = p[i].topk(3)
        assert [guess["label"] for guess in row["top"]] == [str(int(k)) for k in index]
        torch.testing.assert_close(
            torch.tensor([guess["probability"] for guess in row["top"]]), values, atol=1e-4, rtol=1e-3
        )
        apart = np.mean([float((peers[a, i] - peers[b, i]).norm()) for a, b in ((0, 1), (0, 2), (1, 2))])
        assert row["disagreement"] == pytest.approx(apart, abs=1e-4)


def test_table_csv_and_names_from_the_standard_input(shipped: Path, digits: Path, tmp_path: Path) -> None:
    file = shipped / "student.safetensors"
    lines = printed("predict", file, digits / "even", "--top", 2)[0].splitlines()
    assert len(lines) == 10 and all(line.count(" %") == 2 and "apart" not in line for line in lines)

    names = f"{digits / 'odd'}\n\n{digits / 'even' / '00.png'}\n"
    listed, _ = printed("predict", file, "-", "--csv", "--top", 2, stdin=names.encode())
    rows = list(csv.DictReader(io.StringIO(listed)))
    assert [Path(row["image"]).name for row in rows] == [*(f"{i:02}.png" for i in range(1, 20, 2)), "00.png"]
    assert float(rows[0]["probability1"]) >= float(rows[0]["probability2"]) >= 0
    assert list(rows[0]) == ["image", "label1", "probability1", "label2", "probability2"]


def test_a_runs_own_student_predicts(pcl_run: Path, digits: Path, tmp_path: Path) -> None:
    """It says of itself what an export does, but for scores, proof and date."""
    files = pcl_run / "student.safetensors", tmp_path / "exported.safetensors"
    export_run(pcl_run, output=files[1])
    first, second = (printed("predict", file, digits, "--csv")[0] for file in files)
    assert first == second and first.count("\n") == 21
    student, exported = (open_exported(file).metadata for file in files)
    exported.scores = exported.verified = {}
    assert student.provenance == {"method": "PCL", "data": "digits", "epochs": 5, "seed": 0}
    exported.provenance = student.provenance
    assert student == exported


def test_bad_pictures_are_counted_and_the_others_go_on(shipped: Path, digits: Path, tmp_path: Path) -> None:
    good = (digits / "even" / "00.png").read_bytes()
    (tmp_path / "a.png").write_bytes(good)
    (tmp_path / "b.jpg").write_text("This is text.")
    (tmp_path / "c.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "d.png").write_bytes(b"")
    (tmp_path / "e.png").write_bytes(good)
    (tmp_path / "notes.txt").write_text("not counted")
    rows, stderr = printed("predict", shipped / "student.safetensors", tmp_path, "--json")
    assert [Path(row["image"]).name for row in json.loads(rows)] == ["a.png", "e.png"]
    assert "b.jpg cannot be read as a picture: not an image." in stderr and "c.png cannot be read" in stderr
    assert "2 labelled, 3 skipped" in stderr
    sentence = refused("predict", shipped / "student.safetensors", tmp_path / "b.jpg")
    assert sentence.endswith("b.jpg cannot be read as a picture: not an image.")
    with pytest.raises(InputError, match=r"none\.png cannot be read as a picture: no such file or directory\."):
        pictures.decode_picture(tmp_path / "none.png", 1)


@not_on_windows
def test_odd_names(shipped: Path, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long, not UTF-8, of a pipe, of a folder that is closed; a picture where names are expected."""
    file, good = shipped / "student.safetensors", digits / "even" / "00.png"
    assert "file name too long" in refused("predict", file, "a" * 300)
    assert "exclude each other" in refused("predict", file, good, "--json", "--csv")
    odd = os.fsencode(tmp_path) + b"/\xff, 1.png"
    shutil.copy(good, odd)
    os.mkfifo(tmp_path / "waiting.png")
    listed, stderr = printed("predict", file, "-", "--csv", "--top", 1, stdin=odd + b"\r\n-\n" + bytes(tmp_path))
    rows = list(csv.reader(io.StringIO(listed.encode().decode())))
    assert [Path(row[0]).name for row in rows] == ["image", "\ufffd, 1.png", "\ufffd, 1.png"]
    assert "waiting.png cannot be read as a picture: it is a pipe or a device, not a file." in stderr
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(good.read_bytes())))
    assert "one per line, not a picture itself" in refused("predict", file, "-")


def test_a_folder_that_cannot_be_opened_is_told(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("odd"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    files = list(list_pictures([str(digits)]))
    assert len(files) == 11 and files[-1] == digits / "odd"


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for side in (20_000, 12_000, 10_001):  # Pillow refuses the first, warns of the others
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
        body = chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
        (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)
        with pytest.raises(InputError, match="more than 89,478,485 pixels"):
            pictures.decode_picture(tmp_path / "bomb.png", 3)


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
            pixels = np.asarray(pictures.decode_picture(file, channels))
            expected = grey if channels == 1 else np.stack([grey] * 3, axis=-1)
            np.testing.assert_array_equal(pixels, expected, err_msg=file.name)


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
    np.testing.assert_array_equal(np.asarray(pictures.decode_picture(tmp_path / "o.png", 1)), upright)


def test_preparing_is_torchvisions_resize_crop_and_normalise(tmp_path: Path) -> None:
    """Against Pillow and the arithmetic written out: shorter side, centre, (x/255 - mean)/std."""
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 256, (90, 130, 3), dtype=np.uint8))
    how = {"channels": 3, "size": [32, 24], "resize": 45, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.5]}
    prepared = pictures.prepare_picture(picture, how)
    small = np.asarray(picture.resize((65, 45), Image.Resampling.BILINEAR), dtype=np.float64)
    centre = small[6 : 6 + 32, 20 : 20 + 24] / 255
    expected = ((centre - np.array(how["mean"])) / np.array(how["std"])).transpose(2, 0, 1)
    level = 1.01 / 255 / min(how["std"])  # Pillow's resizing and torch's differ by a grey level
    np.testing.assert_allclose(prepared.numpy(), expected, atol=level)
    straight = pictures.prepare_picture(picture, {**how, "resize": None})
    assert straight.shape == (3, 32, 24)
    squashed = np.asarray(picture.resize((24, 32), Image.Resampling.BILINEAR), dtype=np.float64) / 255
    np.testing.assert_allclose(straight[0].numpy(), (squashed[..., 0] - 0.5) / 0.2, atol=level)
    strip = Image.new("RGB", (1, 60_000))  # would grow to 45 x 2,700,000
    assert pictures.prepare_picture(strip, how).shape == (3, 32, 24)


def test_only_a_batch_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = models.factory("resnet8", 4, 1)()
    make_writer(network, torch.randn(2, 1, 8, 8), "safetensors")(tmp_path / "m", metadata("resnet8", 4, (1, 8, 8)))
    loaded = open_exported(tmp_path / "m")
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    opened = 0
    original = pictures.load_picture

    def counting(file: Path, how: dict[str, object]) -> torch.Tensor:
        nonlocal opened
        opened += 1
        return original(file, how)

    monkeypatch.setattr("coterie.deploy.predict.load_picture", counting)
    stream = predict_pictures(loaded, (str(tmp_path / "a.png") for _ in range(5000)), batch=10)
    for _ in range(11):
        next(stream)
    assert opened == 20
    assert list_pictures([str(tmp_path)]).__next__() == tmp_path / "a.png"


def test_disagreement() -> None:
    far = torch.tensor([[[100.0, 0.0], [0.0, 100.0]], [[3.0, 1.0], [3.0, 1.0]]])
    torch.testing.assert_close(disagreement(far), torch.tensor([2**0.5, 0.0]))
    assert disagreement(torch.randn(3, 1, 4)).tolist() == [0, 0, 0]


def test_a_photograph_is_prepared_as_the_loader_does(tmp_path: Path) -> None:
    """Bit by bit what `data.test_batches` gives, for photographs of every shape, from a file's metadata alone."""
    data = folder(str(photographs(tmp_path / "set", train=1, val=10)), workers=0)
    data.load()
    assert data.preprocessing()["resize"] == 256 and data.preprocessing()["size"] == [224, 224]
    network = models.factory("resnet8", len(data.classes), 3)().eval()
    about = metadata("resnet8", len(data.classes), (3, 224, 224))
    about.input = data.preprocessing()
    make_writer(network, torch.randn(2, 3, 224, 224), "safetensors")(tmp_path / "m.safetensors", about)
    loaded = open_exported(tmp_path / "m.safetensors")
    files = [data.path("test", i) for i in range(data.test_size)]
    expected = torch.cat([batch for batch, _ in data.test_batches(64)])
    assert len(files) >= 10 and len({decode_image(file).size for file in files}) >= 10
    for file, tensor in zip(files, expected, strict=True):
        assert torch.equal(pictures.load_picture(file, loaded.metadata.input), tensor)
    rows = list(predict_pictures(loaded, map(str, files), top=1, batch=4))
    with torch.no_grad():
        p = network(expected).softmax(1)
    assert [row.top[0][0] for row in rows] == [f"class {int(c)}" for c in p.argmax(1)]
    assert [row.top[0][1] for row in rows] == pytest.approx(p.amax(1).tolist(), abs=1e-5)


def test_small_images_come_back_as_they_were(digits: Path, shipped: Path, pcl_run: Path) -> None:
    data = restored(pcl_run)[0].data
    expected, how = next(data.test_batches(20))[0], open_exported(shipped / "student.onnx").metadata.input
    for file in list_pictures([str(digits)]):
        assert torch.equal(pictures.load_picture(file, how), expected[int(file.stem)])


class Floats(Dataset[tuple[torch.Tensor, int]]):
    """A set that prepares its own tensors."""

    targets = [0, 1] * 4

    def __init__(self, train: bool = True) -> None:
        pass

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 8, 8), float(place)), self.targets[place]


class Bytes(Floats):
    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:  # type: ignore[override]
        return torch.full((3, 8, 6), place, dtype=torch.uint8), self.targets[place]


def test_what_a_dataset_says_of_its_preparation(tmp_path: Path) -> None:
    data = dataset("tests.deploy.test_predict.Bytes", workers=0)
    data.load()
    expected = {"channels": 3, "size": [8, 6], "resize": None, "filter": "bilinear"}
    expected |= {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert data.preprocessing() == expected
    own = dataset("tests.deploy.test_predict.Floats", workers=0)
    own.load()
    assert own.preprocessing() == {**expected, "size": [8, 8], "resize": 8, "mean": None, "std": None}
    about = metadata("resnet8", 2, (3, 8, 8))
    about.input = own.preprocessing()
    network = models.factory("resnet8", 2, 3)()
    make_writer(network, torch.randn(2, 3, 8, 8), "safetensors")(tmp_path / "m", about)
    with pytest.raises(InputError, match="cannot say how a picture becomes its input"):
        next(predict_pictures(open_exported(tmp_path / "m"), ["x.png"]))
