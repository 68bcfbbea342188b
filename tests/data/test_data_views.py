"""Views of images in memory: against a slow reference, their distribution, independence and determinism."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from coterie.compat import import_torchvision
from coterie.data.augment import Augment, resized_crop
from coterie.data.batch import BatchRequest
from coterie.data.digits import digits
from coterie.data.in_memory import InMemory, Joined, halved
from coterie.data.rng import draws
from coterie.errors import InputError


class Small(InMemory):
    """60 random colour images of 12x12 in 3 classes, 9 to test."""

    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)

    def read(self):
        random = np.random.default_rng(3)
        self.classes = ["a", "b", "c"]
        pixels = random.integers(0, 256, (69, 3, 12, 12), dtype=np.uint8)
        labels = np.arange(69, dtype=np.int64) % 3
        return pixels[:60], labels[:60], pixels[60:], labels[60:]


@pytest.fixture
def small():
    data = Small()
    data.load()
    return data


def reference(data, image, view, seed, epoch):
    """One view of one image by slicing, as the paper says it: pad with black, crop, flip, normalise."""
    top, left, flip, _ = draws(seed, epoch, np.array([image]), view + 1, 4)[view, 0]
    pixels = data.read()[0][image]
    p = data.padding
    canvas = np.zeros((3, 12 + 2 * p, 12 + 2 * p), np.uint8)
    canvas[:, p:-p, p:-p] = pixels
    y, x = int(top * (2 * p + 1)), int(left * (2 * p + 1))
    crop = canvas[:, y : y + 12, x : x + 12]
    if flip < 0.5:
        crop = crop[:, :, ::-1]
    mean, std = (np.array(v, np.float64)[:, None, None] for v in (data.mean, data.std))
    return (crop / 255 - mean) / std


def test_views_equal_a_slow_reference(small):
    images = np.array([5, 0, 59, 5, 17])
    views, labels = small.views(images, 4, seed=7, epoch=2)
    assert labels.tolist() == (images % 3).tolist()
    for v in range(4):
        for b, image in enumerate(images):
            np.testing.assert_allclose(views[v][b], reference(small, image, v, 7, 2), atol=1e-5)


def test_offsets_and_flips_are_uniform_and_independent_between_views():
    class Marked(Small):
        """Every pixel tells its place: the crop and the flip can be read off a view."""

        mean, std = (0.0,), (1 / 255,)

        def read(self):
            self.classes = ["only"]
            place = np.arange(1, 145, dtype=np.uint8).reshape(1, 1, 12, 12)
            labels = np.zeros(4000, np.int64)
            return np.repeat(place, 4000, 0), labels, place, labels[:1]

    data = Marked()
    data.load()
    views, _ = data.views(np.arange(4000), 2, seed=1, epoch=0)
    codes = []
    for view in views:
        middle = view[:, 0, 5:7, 5:7].round().long()
        flipped = (middle[:, 0, 1] < middle[:, 0, 0]).long()
        first = middle[:, 0].min(1).values - 1  # the place in the image that now stands at row 5, column 5 or 6
        top, column = first // 12 - 1, first % 12 - 1
        assert top.min() >= 0 and top.max() <= 8 and column.min() >= 0 and column.max() <= 8
        codes.append((flipped * 81 + top * 9 + column).numpy())
    for code in codes:
        assert stats.chisquare(np.bincount(code, minlength=162)).pvalue > 1e-3
    for part in (lambda c: c // 81, lambda c: c // 9 % 9, lambda c: c % 9):  # flip, top, left
        table = np.histogram2d(
            part(codes[0]), part(codes[1]), bins=(np.arange(-0.5, part(codes[0]).max() + 1),) * 2
        )
        assert stats.chi2_contingency(table[0]).pvalue > 1e-3


def test_a_view_is_a_function_of_seed_epoch_image_and_place(small):
    whole, _ = small.views(np.arange(60), 3, seed=4, epoch=1)
    parts = [small.views(np.arange(60)[i : i + 7], 3, 4, 1)[0] for i in range(0, 60, 7)]
    for v in range(3):
        assert torch.equal(whole[v], torch.cat([part[v] for part in parts]))
    assert torch.equal(whole[0], small.views(np.arange(60), 1, 4, 1)[0][0])
    for other in ({"seed": 5, "epoch": 1}, {"seed": 4, "epoch": 2}):
        assert not torch.equal(whole[0], small.views(np.arange(60), 3, **other)[0][0])
    assert not torch.equal(whole[0], whole[1])
    streamed = list(small.stream([np.arange(10), np.arange(10, 15)], 3, 4, 1))
    assert [len(labels) for _, labels in streamed] == [10, 5]
    assert torch.equal(streamed[1][0][2], whole[2][10:15])


def test_the_device_gets_each_image_once_in_uint8_and_cuts_its_views(small):
    request = BatchRequest("train", np.array([5, 0, 59, 5]), 3, seed=7, epoch=2)
    batch = small.load_batch(request)
    assert batch.pixels.dtype == torch.uint8 and batch.pixels.shape == (1, 4, 3, 12, 12)
    assert batch.crops.places.shape == (3, 3, 4) and batch.crops.cut(batch.pixels[0]).shape == (3, 4, 3, 12, 12)
    changed = Small(augment=["crop", "flip", "erase"])  # one view after another: on the host
    changed.load()
    batch = changed.load_batch(request)
    assert batch.crops is None and batch.pixels.dtype == torch.uint8 and batch.pixels.shape == (3, 4, 3, 12, 12)


def test_digits_are_never_flipped():
    data = digits()
    data.load()
    plain = digits(augment=[])
    plain.load()
    originals = plain.views(np.arange(200), 1, 0, 0)[0][0]
    padded = torch.nn.functional.pad(originals, (1, 1, 1, 1), value=float(originals.min()))
    for view in data.views(np.arange(200), 3, 0, 0)[0]:
        crops = torch.stack([padded[:, :, y : y + 8, x : x + 8] for y in range(3) for x in range(3)])
        assert (crops == view).flatten(2).all(2).any(0).all()


def test_augment_names_what_is_done(small):
    images = np.arange(60)
    still = Small(augment=[])
    still.load()
    views = still.views(images, 2, 0, 0)[0]
    assert torch.equal(views[0], views[1])
    tests = torch.cat([batch for batch, _ in small.test_batches(4)])
    assert tests.shape == (9, 3, 12, 12)
    flipping = Small(augment=["flip"])
    flipping.load()
    turned = flipping.views(images, 1, 0, 0)[0][0]
    same, mirrored = ((turned == x).flatten(1).all(1) for x in (views[0], views[0].flip(-1)))
    assert (same | mirrored).all() and 15 < int(same.sum()) < 45
    with pytest.raises(InputError, match="twice"):
        Small(augment=["crop", "crop"])


@pytest.mark.parametrize("name", ["randaugment", "trivialaugment", "erase"])
def test_torchvision_augmentations_are_drawn_per_view_and_leave_training_randomness_alone(name):
    data = Small(augment=["crop", "flip", name])
    data.load()
    before = torch.get_rng_state()
    views, _ = data.views(np.arange(30), 3, seed=2, epoch=1)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)  # whatever the training has drawn meanwhile
    alone, _ = data.views(np.array([11]), 3, seed=2, epoch=1)
    assert all(torch.equal(a[0], v[11]) for a, v in zip(alone, views, strict=True))
    plain = Small()
    plain.load()
    changed = [
        (a != b).flatten(1).any(1) for a, b in zip(views, plain.views(np.arange(30), 3, 2, 1)[0], strict=True)
    ]
    assert all(int(c.sum()) > 5 for c in changed)
    assert not torch.equal(changed[0], changed[1]) or not torch.equal(views[0], views[1])


def test_erasing_is_torchvisions_with_the_mean_colour():
    view = torch.full((3, 16, 16), 7, dtype=torch.uint8)
    erased = Augment(["erase"], (0.5, 0.4, 0.3))(view, draw=0.25)
    v2 = import_torchvision("torchvision.transforms.v2")
    torch.manual_seed(int(0.25 * 2**53))
    assert torch.equal(erased, v2.RandomErasing(value=[128.0, 102.0, 76.0])(view))


def test_resized_crop_has_torchvisions_distribution():
    v2 = import_torchvision("torchvision.transforms.v2")
    random = np.random.default_rng(0)
    theirs_maker = v2.RandomResizedCrop(224)
    image = torch.zeros(3, 60, 90, dtype=torch.uint8)
    theirs = [theirs_maker.make_params([image]) for _ in range(3000)]
    theirs = np.array([(p["left"], p["top"], p["width"], p["height"]) for p in theirs])
    ours = np.array([resized_crop(90, 60, random.random(22).tolist()) for _ in range(3000)])
    assert (ours[:, :2] >= 0).all() and (ours[:, 2] <= 90).all() and (ours[:, 3] <= 60).all()
    ours = np.column_stack([ours[:, :2], ours[:, 2:] - ours[:, :2]])
    for a, b in zip(theirs.T, ours.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3
    for width, height in ((1000, 10), (10, 1000)):  # no attempt can fit: the centre
        left, top, right, bottom = resized_crop(width, height, [0.99] * 22)
        assert abs((right - left) / (bottom - top) - (4 / 3 if width > height else 3 / 4)) < 0.1
        assert abs(left + right - width) <= 1 and abs(top + bottom - height) <= 1


def test_limit_keeps_the_first_of_each_class_and_val_comes_from_train_only():
    data = Small(limit=10, val_fraction=0.2)
    data.load()
    again = Small(limit=10, val_fraction=0.2)
    again.load()
    assert (data.train_size, len(data.labels["val"]), data.test_size, data.eval_split) == (24, 6, 9, "val")
    assert np.bincount(data.labels["val"]).tolist() == [2, 2, 2]
    first = data.read()[0][:30]

    def rows(split):
        return [np.asarray(data.original(i, split)).tobytes() for i in range(len(data.labels[split]))]

    stored = [p.transpose(1, 2, 0).tobytes() for p in first]
    assert sorted(rows("train") + rows("val")) == sorted(stored)
    assert [np.asarray(again.original(i, "val")).tobytes() for i in range(6)] == rows("val")
    val = torch.cat([batch for batch, _ in data.test_batches(4, split="val")])
    assert val.shape == (6, 3, 12, 12)
    part = torch.cat([batch for batch, _ in data.test_batches(2, slice(1, None, 2))])
    assert torch.equal(part, torch.cat([batch for batch, _ in data.test_batches(9)])[1::2])
    for wrong in ({"limit": 0}, {"val_fraction": 1.0}, {"val_fraction": -0.1}):
        with pytest.raises(InputError):
            Small(**wrong)
    alone = Small(val_fraction=0.9)
    kept, held = alone.subset.choose(np.array([0, 1, 0, 0]), ["0", "1"], seed=None)
    assert 1 in kept and len(held) == 2  # a class keeps an image to train with
    tiny = Small(val_fraction=0.001)
    with pytest.raises(InputError, match="holds out no image"):
        tiny.load()


def test_halving_averages_exactly():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    exact = pixels.astype(np.float64).reshape(5, 3, 16, 2, 16, 2).mean((3, 5))
    assert (halved(pixels) == np.floor(exact + 0.5)).all()


def test_joined_parts_are_one_array():
    parts = [np.random.default_rng(i).integers(0, 9, (4, 2), dtype=np.uint8) for i in range(3)]
    index = np.array([11, 0, 4, 4, 7, 8])
    assert (Joined(parts)[index] == np.concatenate(parts)[index]).all()
