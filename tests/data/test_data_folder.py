"""Image folders: every kind of image, bad ones counted, views the same whatever the number of workers."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from coterie.cli.main import main
from coterie.compat import import_torchvision
from coterie.data.folder import folder, index_folder
from coterie.errors import InputError
from tests.helpers.common import coterie, not_on_windows, picture, refused
from tests.helpers.photographs import photographs


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "set"
    for split, count in (("train", 6), ("val", 3)):
        for c, name in enumerate(("a cat", "ünïcode <b>dog")):
            place = root / split / name
            place.mkdir(parents=True)
            for i in range(count):
                seed = 100 * c + i + (50 if split == "val" else 0)
                picture(seed, (40 + i, 30 + c)).save(place / f"{i}.png")
    return root


def loaded(root: Path, **options) -> folder:
    data = folder(root=str(root), **{"size": 16, "workers": 0, **options})
    data.load()
    return data


@not_on_windows
def test_links_to_folders_are_followed_but_not_in_a_circle(tree, tmp_path):
    count = len(index_folder(tree / "train").files)
    away = tmp_path / "away"
    away.mkdir()
    picture(1).save(away / "z.png")
    (tree / "train" / "a cat" / "more").symlink_to(away)
    (away / "circle").symlink_to(tree / "train" / "a cat")
    (away / "everything").symlink_to(tree / "train")  # else dogs would be cats
    (tree / "train" / "a cat" / "again").symlink_to(away)  # each picture once
    assert len(index_folder(tree / "train").files) == count + 1


def bomb(side: int = 50000) -> bytes:
    """A small PNG that says it has 50,000 x 50,000 pixels."""
    raw = b"\x89PNG\r\n\x1a\n"
    pixels = zlib.compress(bytes(1000))
    for kind, body in (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", pixels),
        (b"IEND", b""),
    ):
        raw += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return raw


@not_on_windows
def test_bad_files_are_skipped_and_counted_or_refused(tree, capsys):
    place = tree / "train" / "a cat"
    whole = io.BytesIO()
    picture(7, (200, 200)).save(whole, "JPEG", quality=95)
    (place / "bomb.png").write_bytes(bomb())
    (place / "large.png").write_bytes(bomb(10000))  # of these Pillow only warns
    (place / "empty.jpg").write_bytes(b"")
    (place / "text.jpeg").write_text("not an image")
    (place / "link.png").symlink_to("nowhere.png")
    (place / "cut.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (place / "notes.txt").write_text("no image, and not called one")
    data = loaded(tree)
    assert data.train_size == 13  # the truncated one has a good header
    said = capsys.readouterr().err
    assert said.startswith("coterie: warning: 5 images cannot be read and will be skipped")
    for name, reason in (
        ("bomb.png", "pixels"),
        ("large.png", "89,478,485"),
        ("empty.jpg", "not an image"),
        ("link.png", "no such file"),
    ):
        assert name in said and reason in said
    for _ in range(2):
        views, labels = data.views(np.arange(13), 2, 0, 0)
        assert [len(v) for v in views] == [12, 12] and len(labels) == 12
    said = capsys.readouterr().err
    assert said.count("cut.jpg") == 1 and "1 image cannot be read and will be skipped, 6 so far" in said
    with pytest.raises(InputError, match=r"5 images cannot be read: .*bomb\.png"):
        loaded(tree, strict=True)
    for name in ("bomb.png", "large.png", "empty.jpg", "text.jpeg", "link.png"):
        (place / name).unlink()
    with pytest.raises(InputError, match=r"cut\.jpg"):
        loaded(tree, strict=True).views(np.arange(13), 2, 0, 0)
    (tree / "val" / "a cat" / "0.png").write_bytes((tree / "val" / "a cat" / "1.png").read_bytes()[:-400])
    count = sum(len(labels) for _, labels in loaded(tree).test_batches(4))
    assert count == 5


def test_a_batch_without_images_stops_the_run(tree):
    for file in (tree / "train" / "a cat").iterdir():
        file.write_bytes(file.read_bytes()[:-500])
    data = loaded(tree)
    with pytest.raises(InputError, match="Of a batch of 4 images 0 could be read"):
        data.views(np.arange(4), 2, 0, 0)


def test_views_are_the_same_from_any_number_of_workers_and_after_a_resume(tree):
    images = np.random.default_rng(0).permutation(12)
    batches = [images[:5], images[5:10], images[10:]]
    options = {"augment": ["crop", "flip", "randaugment"]}
    expected = [loaded(tree, **options).views(b, 3, seed=3, epoch=2) for b in batches]
    state = torch.get_rng_state()
    for workers in (1, 2):
        data = loaded(tree, workers=workers, **options)
        for start in (0, 1):  # a resume gives a shorter list; the workers are those of before
            streamed = list(data.stream(batches[start:], 3, 3, 2))
            assert len(streamed) == 3 - start
            for (views, labels), (wanted, wanted_labels) in zip(streamed, expected[start:], strict=True):
                assert torch.equal(labels, wanted_labels)
                assert all(torch.equal(a, b) for a, b in zip(views, wanted, strict=True))
        pids = [worker.pid for worker in data._loader._iterator._workers]
        tests = torch.cat([x for x, _ in data.test_batches(4)])
        assert torch.equal(tests, torch.cat([x for x, _ in loaded(tree).test_batches(4)]))
        assert pids == [worker.pid for worker in data._loader._iterator._workers]  # they stayed
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(expected[0][0][0], expected[0][0][1])


def test_an_abandoned_stream_does_not_spoil_the_next(tree):
    data = loaded(tree, workers=2)
    batches = [np.arange(i, i + 3) for i in range(0, 12, 3)]
    next(data.stream(batches, 1, 0, 0))
    labels = torch.cat([label for _, label in data.stream(batches, 1, 0, 1)])
    assert labels.tolist() == data.labels["train"].tolist()


def test_test_images_are_torchvisions_resize_and_centre_crop(tmp_path):
    v2 = import_torchvision("torchvision.transforms.v2")
    for i, size in enumerate(((300, 260), (231, 500), (90, 60), (256, 256))):
        (tmp_path / "train" / "c").mkdir(parents=True, exist_ok=True)
        (tmp_path / "val" / "c").mkdir(parents=True, exist_ok=True)
        picture(i, size).save(tmp_path / "train" / "c" / f"{i}.png")
        picture(i, size).save(tmp_path / "val" / "c" / f"{i}.png")
    data = loaded(tmp_path, size=224)
    transform = v2.Compose(
        [v2.Resize(256), v2.CenterCrop(224), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    normal = v2.Normalize(data.mean, data.std)
    (images, _), *rest = list(data.test_batches(10))
    assert not rest and images.shape == (4, 3, 224, 224)
    for i, image in enumerate(images):
        wanted = normal(transform(data.original(i, "test")))
        assert (image - wanted).abs().max() < 3 / 255 / 0.22  # Pillow rounds differently, by a grey level or two


def test_a_view_is_the_drawn_crop_resized(tree):
    from coterie.data.augment import resized_crop
    from coterie.data.rng import draws

    functional = import_torchvision("torchvision.transforms.v2.functional")
    data = loaded(tree)
    views, _ = data.views(np.arange(12), 2, seed=5, epoch=1)
    numbers = draws(5, 1, np.arange(12), 2, 24)
    for v in range(2):
        for i in range(12):
            original = data.original(i)
            left, top, right, bottom = resized_crop(*original.size, numbers[v, i, :22].tolist())
            crop = functional.resized_crop(original, top, left, bottom - top, right - left, [16, 16])
            wanted = functional.to_image(crop if numbers[v, i, 22] >= 0.5 else functional.hflip(crop)) / 255
            wanted = functional.normalize(wanted, data.mean, data.std)
            assert (views[v][i] - wanted).abs().max() < 3 / 255 / 0.22


def test_splits_of_a_folder(tree):
    data = loaded(tree)
    assert (data.eval_split, data.test_size, data.classes) == ("test", 6, ["a cat", "ünïcode <b>dog"])
    held = loaded(tree, val_fraction=0.5)
    assert (held.train_size, held.eval_split, len(held.labels["val"]), held.test_size) == (6, "val", 6, 6)
    names = {s: {held.name(s, i) for i in range(6)} for s in ("train", "val", "test")}
    assert not names["train"] & names["val"] and all("/train/" in n for n in names["val"])
    assert loaded(tree, limit=2).name("train", 3).endswith("<b>dog/1.png")
    (tree / "test" / "a cat").mkdir(parents=True)
    picture(1).save(tree / "test" / "a cat" / "x.png")
    both = loaded(tree)
    assert (both.eval_split, len(both.labels["val"]), both.test_size) == ("val", 6, 1)
    with pytest.raises(InputError, match="both val/ and test/"):
        loaded(tree, val_fraction=0.5)


def test_folders_that_are_not_a_data_set(tmp_path, tree):
    for make, message in (
        (lambda: loaded(tmp_path / "nothing"), "needs train/ and val/"),
        (lambda: folder(size=3), "at least 8"),
        (lambda: folder(workers=-1), "from 0 to 256"),
    ):
        with pytest.raises(InputError, match=message):
            make()
    (tree / "val" / "bird").mkdir()
    with pytest.raises(InputError, match="a class 'bird' that the training images do not have"):
        loaded(tree)
    (tree / "val" / "bird").rmdir()
    (tree / "train" / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no image"):
        loaded(tree)
    for name in ("train", "val"):
        (tmp_path / "bare" / name).mkdir(parents=True)
    with pytest.raises(InputError, match="has no folders"):
        loaded(tmp_path / "bare")


names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda n: n not in (".", ".."))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    classes=st.lists(names, min_size=1, max_size=3, unique_by=str.casefold),
    contents=st.lists(st.tuples(names, st.binary(max_size=60), st.booleans()), max_size=4),
)
def test_any_tree_is_indexed_or_refused_in_a_sentence(tmp_path_factory, classes, contents):
    root = tmp_path_factory.mktemp("fuzz")
    for split in ("train", "val"):
        for name in classes:
            place = root / split / name
            place.mkdir(parents=True)
            for i, (stem, raw, good) in enumerate(contents):
                file = place / f"{i}{stem}.png"
                picture(i, (9, 9)).save(file) if good else file.write_bytes(raw)
    try:
        data = loaded(root)
    except InputError as error:
        assert str(root) in str(error)
    else:
        good = sum(good for *_, good in contents)
        assert data.train_size == good * len(data.classes) > 0
        assert len(data.bad_files) == 2 * len(data.classes) * (len(contents) - good)
        assert data.views(np.arange(data.train_size), 1, 0, 0)[0][0].shape[1:] == (3, 16, 16)


def test_training_on_real_photographs_and_looking_at_them(tmp_path, capsys):
    """80 photographs: a run with two workers, its classes kept with it; inspection finds what was planted."""
    root = photographs(tmp_path / "set", train=25, val=15)
    copied = next((root / "train" / "flower").iterdir())
    (root / "val" / "flower" / "copy.JPG").write_bytes(copied.read_bytes())
    cut = root / "train" / "china" / "cut.jpg"
    cut.write_bytes(copied.read_bytes()[:2000])
    options = ["--data", "folder", "--data.root", root, "--data.size", 32, "--data.workers", 2]
    command = ["train", "--model", "resnet8", "--epochs", 1, "--batch", 16, *options, "--out", tmp_path / "run"]
    result = coterie(*command)
    assert result.returncode == 0, result.stderr
    assert "1 image cannot be read and will be skipped" in result.stderr and "cut.jpg" in result.stderr
    kept = json.loads((tmp_path / "run" / "data.json").read_text())
    assert kept["classes"] == ["china", "flower"] and kept["images"]["train"] == 51
    assert Image.open(tmp_path / "run" / "views.png").width > 300
    cut.unlink()
    assert "data is not that of" in refused(*command)
    cut.write_bytes(copied.read_bytes()[:2000])
    sheet = tmp_path / "sheet.png"
    main(["data", "inspect", str(root), "--views", "4", "--images", "6", "--sheet", str(sheet), "--json"])
    contents = json.loads(capsys.readouterr().out)
    assert contents["per_class"]["train"] == {"china": 26, "flower": 25}
    assert list(contents["bad"]) == [str(cut)] and "truncated" in contents["bad"][str(cut)]
    (copies,) = contents["duplicates"]["between_splits"]
    assert copies == {"train": [str(copied)], "test": [str(root / "val" / "flower" / "copy.JPG")]}
    assert Image.open(sheet).size == (5 * 100 + 4, 6 * 116 + 4)
    main(["data", "inspect", str(root), "--sheet", str(sheet)])
    text = capsys.readouterr().out
    assert "bad files: 1" in text and "the same image in two splits: 1" in text
