"""Which training images a run uses: the first ones, those drawn by a seed, and those held out of the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from coterie.config.options import from_file, from_options
from coterie.config.recipe import Recipe
from coterie.data.base import Data
from coterie.data.digits import digits
from coterie.data.folder import folder
from coterie.data.in_memory import InMemory
from coterie.data.subset import Subset
from coterie.data.wrapped import dataset
from coterie.errors import InputError
from coterie.methods import Method
from coterie.report.evaluation import read_evaluation
from coterie.runs.evaluate_run import evaluate_run
from tests.helpers.common import picture, printed, refused

LABELS = np.random.default_rng(7).permutation(np.repeat(np.arange(3), [40, 50, 30])).astype(np.int64)
HERE = "tests.data.test_data_subsets"
TINY = ["--model", "resnet8", "--method", "Baseline", "--batch", 25, "--epochs", 1, "--data", "digits"]
TINY += ["--data.limit", 5, "--data.limit_seed", "seed"]


class Numbered(InMemory):
    """120 images in mixed order; the first pixel of each is its number."""

    mean, std = (0.5,), (0.25,)

    def read(self):
        pixels = np.zeros((120, 1, 4, 4), np.uint8)
        pixels[:, 0, 0, 0] = np.arange(120)
        self.classes = ["a", "b", "c"]
        return pixels, LABELS, pixels[:6], np.array([0, 1, 2, 0, 1, 2])


def numbers(data: Data, split: str = "train") -> list[int]:
    """The numbers of the images in a split of `Numbered`."""
    return [int(np.asarray(data.original(i, split))[0, 0]) for i in range(len(data.labels[split]))]


def chosen(split: str = "train", run_seed: int | None = None, **options: object) -> list[int]:
    data = Numbered(**options)
    if run_seed is not None:
        data.resolve_seed(run_seed)
    data.load()
    assert data.labels[split].tolist() == LABELS[numbers(data, split)].tolist()
    return numbers(data, split)


def of_class(c: int) -> list[int]:
    return [i for i, label in enumerate(LABELS) if label == c]


def drawn(seed: int, start: int, stop: int, labels: np.ndarray = LABELS) -> list[int]:
    """Positions start to stop of each class's permutation, in file order: the documented draw."""
    images: list[int] = []
    for c in range(int(labels.max()) + 1):
        order = np.random.default_rng((seed, 20261119, c)).permutation(np.flatnonzero(labels == c))
        images += order[start:stop].tolist()
    return sorted(images)


def test_without_a_seed_the_first_images_of_each_class_are_taken_as_ever():
    first = sorted(of_class(0)[:7] + of_class(1)[:7] + of_class(2)[:7])
    assert chosen(limit=7) == chosen(limit=7, run_seed=3) == chosen(limit=7, limit_seed=None) == first
    assert chosen() == list(range(120))
    # What val_fraction holds out of them, by the draw that was there before `limit_seed`.
    expected: list[int] = []
    for c in range(3):
        expected += np.random.default_rng((20210202, c)).permutation(of_class(c)[:10])[:2].tolist()
    assert chosen("val", limit=10, val_fraction=0.2) == sorted(expected)


def test_a_seed_draws_the_images_and_the_word_seed_is_the_runs_own():
    sets = [chosen(limit=7, limit_seed=seed) for seed in range(20)]
    assert sets == [drawn(seed, 0, 7) for seed in range(20)]
    assert len({tuple(images) for images in sets}) == 20
    assert all(np.bincount(LABELS[images]).tolist() == [7, 7, 7] for images in sets)
    assert chosen(limit=7, limit_seed="seed", run_seed=5) == sets[5]
    assert chosen(limit=7, limit_seed=4, run_seed=5) == sets[4]  # a number stays that number in every run
    assert set(chosen(limit=3, limit_seed=5)) < set(sets[5])  # fewer images are some of the same
    assert len(chosen(limit=35, limit_seed=1)) == 35 + 35 + 30  # a class with fewer gives all it has
    # Over many seeds each image of a class of 30 is drawn in 7 of 30 cases: 400 draws, five deviations.
    counts = np.bincount([i for seed in range(400) for i in drawn_by_set(seed) if LABELS[i] == 2], minlength=120)
    assert abs(counts[of_class(2)] - 400 * 7 / 30).max() < 5 * np.sqrt(400 * 7 / 30 * 23 / 30)


def drawn_by_set(seed: int) -> list[int]:
    return Subset(limit=7, limit_seed=seed).choose(LABELS, ["a", "b", "c"], seed)[0].tolist()


def test_val_fraction_divides_the_drawn_images():
    options = {"limit": 10, "limit_seed": 2, "val_fraction": 0.2}
    train, val = chosen(**options), chosen("val", **options)
    assert sorted(train + val) == drawn(2, 0, 10) and len(val) == 6


@pytest.mark.parametrize("limit_seed", [None, 0, 11])
def test_val_limit_holds_out_images_that_limit_leaves_and_changes_no_training_image(limit_seed):
    options = {"limit": 7, "limit_seed": limit_seed}
    data = Numbered(**options, val_limit=4)
    data.load()
    train, val = numbers(data), numbers(data, "val")
    assert train == chosen(**options) and not set(train) & set(val)
    assert data.eval_split == "val" and data.test_size == 6
    if limit_seed is None:
        assert val == sorted(of_class(0)[7:11] + of_class(1)[7:11] + of_class(2)[7:11])
    else:
        assert val == drawn(limit_seed, 7, 11)


def test_val_limit_may_take_all_that_is_left_but_not_more():
    assert len(chosen("val", limit=20, val_limit=10)) == 30
    sentence = "`limit` 20 leaves 10 training images of the class c unused, fewer than `val_limit` 11"
    for options in ({}, {"limit_seed": 3}):
        with pytest.raises(InputError, match=sentence):
            Numbered(limit=20, val_limit=11, **options).load()
    with pytest.raises(InputError, match="leaves 0 training images of the class c"):
        Numbered(limit=35, val_limit=1).load()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"limit_seed": 3}, "give `limit` as well"),
        ({"limit_seed": "seed"}, "give `limit` as well"),
        ({"limit": 5, "limit_seed": -1}, "`limit_seed` must not be negative, not -1"),
        ({"limit": 5, "limit_seed": "sead"}, "a whole number or the word seed, not 'sead'"),
        ({"val_limit": 3}, "give `limit` as well"),
        ({"limit": 5, "val_limit": 0}, "`val_limit` must be at least 1"),
        ({"limit": 5, "val_limit": 3, "val_fraction": 0.1}, "leave one away"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_a_sentence(tmp_path, options, sentence):
    for cls in (Numbered, folder):
        with pytest.raises(InputError) as error:
            cls(**options)
        assert sentence in str(error.value)
    if "sead" not in options.values():
        flags = [word for name, value in options.items() for word in (f"--data.{name}", value)]
        sentence = re.sub(r"`(\w+)`", r"--data.\1", sentence)
        assert sentence in refused("train", "--data", "digits", *flags, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_line_says_what_a_limit_seed_is(tmp_path):
    flags = ["--data.limit", 5, "--data.limit_seed", "sead", "--out", tmp_path / "run"]
    message = refused("train", "--data", "digits", *flags)
    assert "--data.limit_seed expects" in message and "a whole number" in message and "seed" in message


def test_the_word_seed_needs_a_run(tmp_path):
    options = ["--limit", 5, "--limit_seed", "seed", "--sheet", tmp_path / "sheet.png"]
    assert "without a run give a number" in refused("data", "inspect", "digits", *options)
    options[3] = 4
    counts = json.loads(printed("data", "inspect", "digits", *options, "--json")[0])
    assert counts["images"]["train"] == 50


def test_a_loaded_set_is_not_used_for_the_images_of_another_seed():
    data = digits(limit=5, limit_seed="seed")
    Recipe(data=data, seed=1)
    Recipe(data=data, seed=2)  # nothing is loaded yet: the last run's seed counts
    data.load()
    Recipe(data=data, seed=2)
    with pytest.raises(InputError, match="loaded with the images of seed 2: make another one for seed 3"):
        Recipe(data=data, seed=3)
    fixed = digits(limit=5, limit_seed=9)
    fixed.load()
    Recipe(data=fixed, seed=3)


class Plain:
    """A Dataset with the labels of `Numbered`; its images are white squares that carry their number."""

    def __init__(self, train: bool = True) -> None:
        self.targets = LABELS.tolist() if train else [0, 1, 2]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return np.full((4, 4), i, np.uint8), self.targets[i]


def test_sets_that_are_read_image_by_image_choose_in_the_same_way(tmp_path):
    data = dataset(f"{HERE}.Plain", limit=7, limit_seed="seed", val_limit=4, workers=0)
    data.resolve_seed(6)
    data.load()
    assert numbers(data) == drawn(6, 0, 7) and numbers(data, "val") == drawn(6, 7, 11)
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            for i in range(6):
                picture(i).save(tmp_path / split / label / f"{i}.png")
    images = folder(str(tmp_path), size=8, limit=2, limit_seed=1, val_limit=3, workers=0)
    images.load()
    labels = np.repeat([0, 1], 6)
    for split, part in (("train", drawn(1, 0, 2, labels)), ("val", drawn(1, 2, 5, labels))):
        names = [images.path(split, i).name for i in range(len(images.labels[split]))]
        assert names == [f"{i % 6}.png" for i in part]
    (tmp_path / "test").mkdir()
    with pytest.raises(InputError, match=r"leave `val_limit` away"):
        folder(str(tmp_path), limit=2, val_limit=3).load()


def digit_numbers(recipe: Recipe, split: str = "train") -> list[int]:
    """Which of the 600 training digits a loaded recipe uses."""
    stored = [p.tobytes() for p in digits().read()[0][:, 0]]
    data = recipe.data
    return [stored.index(np.asarray(data.original(i, split)).tobytes()) for i in range(len(data.labels[split]))]


def test_every_method_of_a_seed_trains_on_the_same_images():
    expected = drawn(3, 0, 5, digits().read()[1])
    for method in ("Baseline", "PCL", "DML", "KDCL"):
        data = {"class_path": "digits", "init_args": {"limit": 5, "limit_seed": "seed"}}
        recipe = from_options({"method": method, "model": "resnet8", "batch": 25, "seed": 3, "data": data})
        recipe.build(fresh=False)
        assert digit_numbers(recipe) == expected


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Two runs of one command with different seeds, on images of their own."""
    root = tmp_path_factory.mktemp("subsets")
    for seed in (3, 4):
        printed("train", *TINY, "--data.val_limit", 20, "--seed", seed, "--out", root / f"seed{seed}")
    return {seed: root / f"seed{seed}" for seed in (3, 4)}


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_keeps_the_word_and_finds_its_images_again(runs):
    labels = digits().read()[1]
    for seed, run in runs.items():
        config = yaml.safe_load((run / "config.yaml").read_text())
        assert config["data"]["init_args"]["limit_seed"] == "seed" and config["seed"] == seed
        assert [record["split"] for record in records(run)] == ["val"]
        recipe = from_file(run / "config.yaml")
        recipe.data.load()
        assert digit_numbers(recipe) == drawn(seed, 0, 5, labels)
        assert digit_numbers(recipe, "val") == drawn(seed, 5, 25, labels)
    first, second = (yaml.safe_load((run / "config.yaml").read_text()) for run in runs.values())
    assert {**first, "seed": 4} == second  # so that reports take them for seeds of one setting


def test_evaluate_and_report_judge_a_run_on_its_own_images(runs):
    scores = json.loads(printed("evaluate", runs[3], "--json")[0])
    assert 0 <= scores["predictors"]["peer1"]["error"] <= 100
    again = evaluate_run(runs[3], digits(limit=5, limit_seed="seed"))  # another set takes the run's seed
    assert again["predictors"]["peer1"]["error"] == scores["predictors"]["peer1"]["error"]
    for run in runs.values():  # `evaluate` has written the first one's again
        kept = read_evaluation(run)
        assert kept.tested == 200 and kept.error == records(run)[-1]["predictors"]["peer1"]["error"]


def test_a_run_that_was_broken_off_goes_on_with_the_same_images(tmp_path, monkeypatch):
    command = ["train", *TINY, "--epochs", 2, "--seed", 3, "--checkpoint_every", "0s", "--out"]
    printed(*command, tmp_path / "whole")
    original, steps = Method.after_step, [0]

    def after_step(self: Method) -> None:
        original(self)
        steps[0] += 1
        if steps[0] == 3:  # of four
            raise ConnectionAbortedError

    with monkeypatch.context() as patch:
        patch.setattr(Method, "after_step", after_step)
        with pytest.raises(SystemExit):
            printed(*command, tmp_path / "broken")
    printed(*command, tmp_path / "broken")
    whole, broken = ((tmp_path / name / "student.safetensors").read_bytes() for name in ("whole", "broken"))
    assert whole == broken


def test_the_same_command_continues_and_another_choice_is_refused(runs):
    command = ["train", *TINY, "--data.val_limit", 20, "--out", runs[3]]
    before = (runs[3] / "metrics.jsonl").read_text()
    printed(*command, "--seed", 3)
    assert (runs[3] / "metrics.jsonl").read_text() == before
    assert "seed was 3, is 4" in refused(*command, "--seed", 4)
    assert "data.limit_seed was seed, is 3" in refused(*command, "--seed", 3, "--data.limit_seed", 3)
    assert "data.val_limit was 20, is 10" in refused(*command, "--seed", 3, "--data.val_limit", 10)
