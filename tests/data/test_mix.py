"""CutMix and MixUp: what is mixed, by which draws, and that a training with them is exact."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import coterie
from coterie.data.mix import Mix, clipped_side
from coterie.errors import InputError
from tests.helpers.common import TinyNet, not_on_windows, printed, refused, train


def batch(views: int = 3, images: int = 6) -> tuple[list[Tensor], Tensor]:
    return [torch.randn(images, 3, 8, 10) for _ in range(views)], torch.arange(images) % 5


def test_cutmix_puts_one_box_of_one_partner_into_every_view() -> None:
    views, labels = batch()
    for seed in range(20):
        mixed, targets = coterie.CutMix(probability=1.0)(views, labels, 5, seed=(seed,))
        changed = [(m != v).any(1) for m, v in zip(mixed, views, strict=True)]  # (B, H, W) of each view
        box = changed[0].any(0)
        rows, columns = box.any(1), box.any(0)
        area = int(rows.sum()) * int(columns.sum())
        assert int(box.sum()) == area  # a rectangle
        for view_changed in changed:  # the same one in every image that has another one for its partner
            assert all(torch.equal(image, box) or not image.any() for image in view_changed)
        lam = 1 - area / 80
        for i in range(6):
            partner = [
                k
                for k in range(6)
                if all(torch.equal(m[i][:, box], v[k][:, box]) for m, v in zip(mixed, views, strict=True))
            ]
            if area:
                assert len(partner) == 1  # one permutation for all views
                expected = np.zeros(5)
                expected[labels[i]] += lam
                expected[labels[partner[0]]] += 1 - lam
                np.testing.assert_allclose(targets[i], expected, atol=1e-6)


def test_mixup_averages_every_view_with_the_same_partner_and_share() -> None:
    views, labels = batch()
    mixed, targets = coterie.MixUp(alpha=1.0, probability=1.0)(views, labels, 5, seed=(3,))
    random = np.random.default_rng((3, 0x4D4958))
    random.random()
    lam = random.beta(1.0, 1.0)
    random.random(2)
    partners = torch.from_numpy(random.permutation(6))
    one_hot = torch.eye(5)[labels]
    for m, v in zip(mixed, views, strict=True):
        torch.testing.assert_close(m, lam * v + (1 - lam) * v[partners])
    torch.testing.assert_close(targets, lam * one_hot + (1 - lam) * one_hot[partners])


@pytest.mark.parametrize(
    ("size", "centre", "share", "expected"),
    [(10, 0.5, 0.75, (3, 7)), (10, 0.0, 0.75, (0, 2)), (10, 0.95, 0.0, (4, 10)), (10, 0.5, 1.0, (5, 5))],
)
def test_the_box_is_clipped_at_the_border(
    size: int, centre: float, share: float, expected: tuple[int, int]
) -> None:
    assert clipped_side(size, centre, share) == expected


def test_shares_follow_their_distribution() -> None:
    """Beta(1, 1) is even; MixUp's share is lambda itself."""
    views, labels = [torch.zeros(2, 1, 4, 4)], torch.tensor([0, 1])
    mix = coterie.MixUp(alpha=1.0, probability=0.5)
    shares = []
    for seed in range(2000):
        _, targets = mix(views, labels, 2, seed=(seed,))
        if targets.dim() == 2 and targets[0, 0] < 1:
            shares.append(float(targets[0, 0]))
    # Half of the steps mix, and of two images half of the permutations exchange them.
    assert len(shares) / 2000 == pytest.approx(0.25, abs=0.04)
    quarters = np.histogram(shares, bins=4, range=(0, 1))[0] / len(shares)
    assert quarters == pytest.approx([0.25] * 4, abs=0.06)


def test_draws_depend_on_the_seed_alone_and_on_torch_without_one() -> None:
    views, labels = batch()
    mix = coterie.CutMix(probability=1.0)
    a, b, c = (mix(views, labels, 5, seed=seed)[0][0] for seed in ((1, 2, 0), (1, 2, 0), (1, 2, 1)))
    assert torch.equal(a, b) and not torch.equal(a, c)
    torch.manual_seed(5)
    first = mix(views, labels)[0][0]
    torch.manual_seed(5)
    assert torch.equal(first, mix(views, labels)[0][0])


def test_parts_of_a_batch_have_one_share_and_one_box() -> None:
    views, labels = batch(images=9)
    mix = coterie.CutMix(probability=1.0)
    boxes = []
    for part in (slice(0, 4), slice(4, 9)):
        mine = [view[part] for view in views]
        mixed, _ = mix(mine, labels[part], 5, seed=(0, 7, 0))
        boxes.append((mixed[0] != mine[0]).any(1).any(0))
    assert boxes[0].any() and torch.equal(*boxes)


def test_images_stay_clean_after_until_and_without_probability() -> None:
    views, labels = batch()
    clean_tail, never = coterie.CutMix(probability=1.0, until=0.8), coterie.MixUp(probability=0.0)
    for mix, progress in ((clean_tail, 0.8), (never, 0.0)):
        mixed, targets = mix(views, labels, 5, progress=progress)
        assert targets is labels and all(m is v for m, v in zip(mixed, views, strict=True))
    assert clean_tail(views, labels, 5, progress=0.79)[1].dim() == 2


def test_in_a_loop_of_ones_own() -> None:
    views, labels = batch()
    net = coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 8, 10))
    method = coterie.PCL(net)
    mixed, targets = coterie.CutMix(probability=1.0)(views, labels)
    assert targets.shape == (6, 5)
    terms = method(mixed, targets, 0.5)
    terms["loss"].backward()
    # Labels that leave out the last classes have fewer columns; those classes have probability 0.
    mixed, targets = coterie.MixUp(probability=1.0)(views, labels % 3)
    assert targets.shape == (6, 3) and torch.isfinite(method(mixed, targets, 0)["loss"])


def test_one_view_may_be_a_tensor_and_bad_targets_are_refused() -> None:
    views, labels = batch(1)
    one, several = (coterie.MixUp(probability=1.0)(v, labels, 5, seed=(1,)) for v in (views[0], views))
    assert torch.equal(one[0][0], several[0][0]) and torch.equal(one[1], several[1])
    for targets, says in (
        (labels[:3], "not of shape"),
        (labels.float(), "must be integers"),
        (labels + 3, "from 0 to 4, not 3 to 7"),
    ):
        with pytest.raises(InputError, match=says):
            coterie.CutMix()(views, targets, 5)


def test_probabilities_are_mixed_too() -> None:
    views, _ = batch()
    soft = torch.softmax(torch.randn(6, 5), 1)
    _, targets = coterie.MixUp(alpha=1.0, probability=1.0)(views, soft, seed=(3,))
    torch.testing.assert_close(targets.sum(1), torch.ones(6))


def test_what_timm_and_torchvision_mix_is_taken_as_it_is() -> None:
    from coterie.compat import import_torchvision

    v2, timm_data = import_torchvision("torchvision.transforms.v2"), import_torchvision("timm.data")
    torch.manual_seed(0)
    np.random.seed(0)
    method = coterie.Baseline(coterie.PeerNet(TinyNet, 1, None, torch.randn(2, 3, 8, 8)))
    images, labels = torch.randn(6, 3, 8, 8), torch.arange(6) % 5
    theirs = timm_data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5)(
        images.clone(), labels
    )
    cut = v2.CutMix(num_classes=5)(images, labels)
    for mixed, targets in (theirs, cut):
        with torch.no_grad():
            loss = method.eval()(mixed, targets, 0)["loss"].item()
            z = method.net.peers[0](mixed).log_softmax(1)
        assert loss == pytest.approx(-(targets * z).sum(1).mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: coterie.CutMix(alpha=0), "`alpha` of CutMix must be greater than 0, not 0"),
        (lambda: coterie.MixUp(alpha=-1.0), "`alpha` of MixUp"),
        (lambda: coterie.MixUp(alpha=math.nan), "`alpha` of MixUp"),
        (lambda: coterie.CutMix(probability=1.5), "`probability` of CutMix must be from 0 to 1"),
        (lambda: coterie.CutMix(until=-0.1), "`until` of CutMix"),
        (lambda: coterie.CutMix()([torch.zeros(1, 3, 8, 8)], torch.zeros(1).long(), 5), "at least two images"),
        (
            lambda: coterie.CutMix()([torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 8, 9)], torch.zeros(2).long(), 5),
            "one shape",
        ),
    ],
)
def test_bad_input(make: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make()  # type: ignore[operator]


MIXED = ["--model", "resnet8", "--data", "digits", "--data.limit", 20, "--batch", 50, "--mix", "CutMix"]


def test_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    say = refused("train", *MIXED, "--method", "MCL", "--out", out)
    assert "MCL" in say and "--mix" in say
    for options in (["--mix.probability", 1], ["--mix", "[CutMix,MixUp]"]):
        assert "--mix is CutMix or MixUp" in refused("train", *MIXED[:-2], *options, "--out", out)
    say = refused("train", *MIXED, "--mix.alpha", "0", "--out", out)
    assert "--mix.alpha of CutMix must be greater than 0" in say
    say = refused("train", *MIXED, "--batch", 1, "--method", "Baseline", "--out", out)
    assert "two images" in say
    assert not out.exists()


@not_on_windows
def test_a_training_with_mixing_that_is_stopped_ends_bit_for_bit_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.training import progress

    options = [*MIXED, "--mix.probability", 0.7, "--epochs", 3, "--method", "KDCL", "--label_smoothing", 0.1]
    printed("train", *options, "--out", tmp_path / "whole")
    step = progress.ProgressReporter.step

    def stop(self: progress.ProgressReporter, *args: object) -> None:
        step(self, *args)  # type: ignore[arg-type]
        if self.done == 6:  # within the second epoch of four steps
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(progress.ProgressReporter, "step", stop)
    with pytest.raises(SystemExit) as ended:
        printed("train", *options, "--out", tmp_path / "parts")
    assert ended.value.code == 75
    monkeypatch.undo()
    printed("train", *options, "--out", tmp_path / "parts")
    whole, parts = (load_file(tmp_path / name / "student.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    assert [line["terms"] for line in records(tmp_path / "whole")] == [
        line["terms"] for line in records(tmp_path / "parts")
    ]


def records(run: Path) -> list[dict[str, dict[str, float]]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_mixing_changes_the_training_and_is_shown_in_its_picture(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain", "--method", "Baseline", "--epochs", 1)
    mixed = train(
        tmp_path / "mixed", "--method", "Baseline", "--epochs", 1, "--mix", "MixUp", "--mix.probability", 1
    )
    assert records(plain)[0]["terms"] != records(mixed)[0]["terms"]
    widths = [Image.open(run / "views.png").width for run in (plain, mixed)]
    assert widths == [4 * 100 + 4, 7 * 100 + 4]  # original and three views; three mixed ones beside them


def test_mix_is_a_class_with_two_kinds() -> None:
    assert issubclass(coterie.CutMix, Mix) and issubclass(coterie.MixUp, Mix)
    assert (coterie.CutMix().alpha, coterie.CutMix().probability, coterie.CutMix().until) == (1.0, 0.5, 1.0)
    assert (coterie.MixUp().alpha, coterie.MixUp().probability, coterie.MixUp().until) == (0.4, 0.5, 1.0)
