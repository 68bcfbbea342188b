"""Options become a recipe: from flags, plain values and Python objects; schedules are fractions."""

from __future__ import annotations

import gc
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie.config.options import OPTIONS, from_options, parser
from coterie.config.parsing import parse
from coterie.config.recipe import Recipe
from coterie.config.schedule import Cosine, Steps, rate
from coterie.data.sampler import batch_slices
from coterie.errors import InputError
from tests.helpers.common import TinyNet
from tests.helpers.common import small_recipe as recipe


def make_tiny(num_classes: int, in_channels: int) -> TinyNet:
    return TinyNet(num_classes, channels=in_channels)


def test_schedules_are_fractions() -> None:
    steps = Steps()
    for epochs in (300, 30, 7):
        factors = [rate(steps, e, epochs, 0.0) for e in range(epochs)]
        assert [sum(math.isclose(f, x) for f in factors) for x in (1, 0.1, 0.01)] == [
            math.ceil(epochs / 2),
            math.ceil(epochs * 0.75) - math.ceil(epochs / 2),
            epochs - math.ceil(epochs * 0.75),
        ]
    assert [rate(steps, e, 300, 0.0) for e in (149, 150, 224, 225)] == pytest.approx([1, 0.1, 0.1, 0.01])
    for wrong in ((2, 3), (0.5, 150), (-0.1,), (float("nan"),)):
        with pytest.raises(InputError, match="fractions of the training, from 0 to 1, not"):
            Steps(at=wrong)
    imagenet = Steps(at=(1 / 3, 2 / 3))
    assert [rate(imagenet, e, 90, 0.0) for e in (29, 30, 59, 60)] == pytest.approx([1, 0.1, 0.1, 0.01])
    assert rate(Cosine(), 50, 100, 0.0) == pytest.approx(0.5) and rate(Cosine(), 0, 100, 0.0) == 1
    assert rate(Cosine(floor=0.1), 100, 100, 0.0) == pytest.approx(0.1)
    assert [rate(steps, s, 100, 0.1) for s in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1.0, 1.0])


def test_ramp_up_and_horizon_follow_the_length_of_the_training_unless_given() -> None:
    run_recipe = recipe(epochs=30)
    method = run_recipe.build()
    steps = 30 * math.ceil(100 / 32)
    assert isinstance(method, coterie.PCL)
    assert method.ramp_up == pytest.approx(8.0)
    assert method.mean.beta == pytest.approx(1 - 1 / max(1, steps * 1000 / 117300))
    assert run_recipe.resolved == {"method.ramp_up": pytest.approx(8.0), "method.beta": method.mean.beta}
    assert "ramp_up" not in run_recipe.config["method"]["init_args"]  # the options stay as they were set
    method = recipe(epochs=30, method={"class_path": "PCL", "init_args": {"ramp_up": 80, "beta": 0.999}}).build()
    assert (method.ramp_up, method.mean.beta) == (80, 0.999)
    mutual = {"class_path": "PCL", "init_args": {"peer_teacher": "mutual", "beta": 0.5}}
    assert recipe(method=mutual, ema=True).build().mean.beta == 0.5  # also where only --ema keeps averages
    paper = from_options({})  # the defaults are the paper's protocol, at CIFAR's 50,000 images
    steps = paper.epochs * len(batch_slices(50000, paper.batch))
    assert steps == 117300 and 1 - 1 / (paper.ema_horizon * steps) == pytest.approx(0.999)


class Passing(coterie.PCL):
    """A user's own variant, which passes on what it does not know.

    Args:
        net: the peers.
        own: its own option.
    """

    def __init__(self, net: coterie.PeerNet, own: float = 1.0, **options: Any) -> None:
        super().__init__(net, **options)


def test_a_subclass_that_passes_options_on_follows_the_length_too() -> None:
    own, ours = (recipe(epochs=30, method=name).build() for name in ("tests.config.test_recipe.Passing", "PCL"))
    assert (own.ramp_up, own.mean.beta) == (ours.ramp_up, ours.mean.beta)


def test_short_names_mean_our_methods_whatever_else_is_called_so() -> None:
    """torch.export leaves classes called like the exported module's, module and all, in the process."""
    twin = type("PCL", (coterie.PCL,), {"__module__": "coterie.methods.pcl", "__qualname__": "PCL"})
    assert recipe(method="PCL").method_class is coterie.PCL
    assert recipe(method={"class_path": "PCL", "init_args": {"temperature": 2.0}}).method_class is coterie.PCL
    train_parser = parser()
    assert parse(train_parser, ["--method", "PCL"]).method.class_path == "coterie.PCL"
    assert parse(train_parser, ["--method=PCL"]).method.class_path == "coterie.PCL"
    del twin
    gc.collect()  # for the tests that follow


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        (["--compile"], True),
        (["--compile", "--ema"], True),
        (["--compile", "reduce-overhead"], "reduce-overhead"),
        (["--compile=false"], False),
        (["--compile", "no"], False),
        (["--ema", "--seed", "1"], False),
    ],
)
def test_a_switch_may_stand_alone(words: list[str], compiled: bool | str) -> None:
    config = parse(parser(), words)
    assert config.compile == compiled and config.ema == ("--ema" in words)


def test_classes_and_partials_are_written_as_the_names_that_the_command_takes(tmp_path: Path) -> None:
    by_object = from_options(
        {
            "method": partial(coterie.KDCL, temperature=2.0),
            "optimizer": partial(torch.optim.AdamW, lr=0.01),
            "schedule": coterie.Cosine(floor=0.1),
            "mix": coterie.CutMix(probability=0.25),
            "model": make_tiny,
        }
    )
    by_name = from_options(
        {
            "method": {"class_path": "KDCL", "init_args": {"temperature": 2.0}},
            "optimizer": {"class_path": "AdamW", "init_args": {"lr": 0.01, "weight_decay": 0.01}},
            "schedule": {"class_path": "Cosine", "init_args": {"floor": 0.1}},
            "mix": {"class_path": "CutMix", "init_args": {"probability": 0.25}},
            "model": f"{__name__}:make_tiny",
        }
    )
    assert by_object.config == by_name.config and not by_object.objects
    assert by_object.method_class is coterie.KDCL and by_object.method_options["temperature"] == 2.0
    # A class that is given as an object has its own defaults, not those of the recipe's SGD.
    assert by_object.config["optimizer"]["init_args"]["weight_decay"] == 0.01


def test_values_of_numpy_and_torch_are_written_as_plain_ones() -> None:
    recipe = from_options(
        {
            "optimizer": {"class_path": "SGD", "init_args": {"lr": np.float64(0.05)}},
            "seed": np.int64(3),
            "class_weights": torch.ones(10),
            "device": torch.device("cpu"),
        }
    )
    assert not recipe.objects and recipe.config["optimizer"]["init_args"]["lr"] == 0.05
    assert recipe.config["seed"] == 3 and recipe.config["class_weights"] == [1.0] * 10 and recipe.device == "cpu"


def test_a_recipe_that_is_made_directly_describes_all_of_its_options() -> None:
    config = Recipe(epochs=7).config
    assert list(config) == OPTIONS and config["epochs"] == 7 and config["method"]["class_path"] == "coterie.PCL"
