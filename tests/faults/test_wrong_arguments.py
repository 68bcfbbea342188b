"""Wrong arguments from Python: one sentence that says what was expected, as for a wrong call of a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import coterie
from coterie.config.options import from_options
from coterie.config.schedule import Rates
from coterie.errors import InputError
from coterie.methods import available
from coterie.metrics.evaluate import evaluate
from tests.helpers.common import TinyNet, small_recipe

IMAGES, LABELS = torch.zeros(20, 3, 8, 8, dtype=torch.uint8), torch.arange(20) % 2
VIEWS = torch.zeros(4, 3, 8, 8)


def built(**options: Any) -> object:
    """Return what a training makes of a recipe before its first step."""
    recipe = small_recipe(method="Baseline", **options)
    recipe.data.load()
    optimizer = recipe.build_optimizer(recipe.build())
    return Rates(recipe.schedule, optimizer, recipe.epochs, recipe.steps_per_epoch)


def called(
    views: object = VIEWS, targets: object = LABELS[:4], epoch: object = 0, name: str = "DML", **options: Any
) -> object:
    """Call a method as a training loop of one's own does."""
    method: Any = getattr(coterie, name)(coterie.PeerNet(TinyNet, 2), **options)
    return method(views, targets, epoch)


def over_others(_: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


def loaded(labels: torch.Tensor) -> object:
    return from_options({"data": ((IMAGES, labels), (IMAGES, LABELS))}).data.load()


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a network for a PeerNet": (lambda: coterie.PCL(nn.Linear(1, 1)), "PCL trains a PeerNet, not a Linear"),
    "no PeerNet": (lambda: coterie.DML(None), "DML trains a PeerNet, not a NoneType"),
    "a name for a network": (lambda: coterie.PeerNet("resnet8"), "that makes one, not from 'resnet8'"),
    "a method that is none": (lambda: coterie.train(method=5, out="x"), "`method` must be a name, a class"),
    "options that are none": (
        lambda: coterie.train(method_options=[1], out="x"),
        "`method_options` must be a mapping such as {'a': 1}, not list",
    ),
    "no epochs": (lambda: small_recipe(epochs=None), "`epochs` must be at least 1, not None"),
    "an optimiser that is none": (lambda: built(optimizer=lambda p: nn.Linear(1, 1)), "`optimizer` made a Linear"),
    "a schedule that is none": (lambda: built(schedule=lambda o: 3), "`schedule` made a int, not a scheduler"),
    "seeds in words": (lambda: coterie.compare(out="x", seeds="two"), "`seeds` must be at least 1, not two"),
    "a budget without a unit": (lambda: coterie.compare(out="x", budget=3), "`budget` is a time such as 30s"),
    "an optimiser that is made": (
        lambda: built(optimizer=over_others([])),
        "`optimizer` must be a name, a class or a function that is given the parameters, not an optimiser that is",
    ),
    "an optimiser of other parameters": (
        lambda: built(optimizer=over_others),
        "`optimizer` holds none of the method's parameters: build it over those it is given.",
    ),
    "a directory in numbers": (lambda: coterie.train(out=3), "`out` must be a path, not 3."),
    "no directory": (lambda: coterie.train(out=None), "`out` must be a path, not None."),
    "a null character": (lambda: coterie.train(out="a\0b"), "`out` has a null character, which no path has."),
    "no run": (lambda: coterie.load(None), "`path` must be a path, not None."),
    "no directory of runs": (lambda: coterie.compare(out=None), "`out` must be a path, not None."),
    "a method to compare": (lambda: coterie.compare(out="x", methods="Nope"), "There is no method 'Nope'; there"),
    "methods in a text": (
        lambda: coterie.compare(out="x", methods="PCL, Nope"),
        "There is no method 'Nope'; there",
    ),
    "methods in numbers": (lambda: coterie.compare(out="x", methods=5), "`methods` must be a list of methods, or"),
    "peers and a half": (lambda: coterie.PeerNet(TinyNet, 1.5), "`peers` must be a whole number, at least one"),
    "networks for no peer": (
        lambda: coterie.PeerNet([]),
        "A sequence of 0 networks cannot make 0 peers: give one",
    ),
    "two networks for three peers": (
        lambda: coterie.PeerNet([TinyNet, TinyNet], 3),
        "A sequence of 2 networks cannot make 3 peers: give one for each.",
    ),
    "an example in words": (
        lambda: coterie.PeerNet(TinyNet, 2, example="x"),
        "`example` must be a tensor, a batch of inputs, not 'x'.",
    ),
    "labels out of range": (
        lambda: called(targets=LABELS[:4] + 5),
        "Class numbers must be from 0 to 4, not 5 to 6.",
    ),
    "labels in a list": (lambda: called(targets=[0, 1, 2, 3]), "Targets must be a tensor of class numbers or"),
    "no epoch": (lambda: called(epoch=None), "`epoch` must be the number of epochs trained so far, not None."),
    "no views": (lambda: called(views=None), "A view must be a tensor, a batch of images, not NoneType."),
    "views in words": (lambda: called(views="ab"), "A view must be a tensor, a batch of images, not str."),
    "views of different images": (
        lambda: called([VIEWS, VIEWS[:3]], name="KDCL"),
        "The views are of 4 and 3 images: all must be of the same images, in one order.",
    ),
    "nothing to score": (
        lambda: evaluate(coterie.Baseline(coterie.PeerNet(TinyNet, 1)), []),
        "None of the images to score could be read: `coterie data inspect` lists those that cannot, and why.",
    ),
    "labels that are keys": (
        lambda: loaded(LABELS + 10**12),
        "has the label 1000000000000: labels must be the num",
    ),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_argument_is_one_sentence(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    work, sentence = WRONG[call]
    with pytest.raises(InputError) as error:
        work()
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_scheduler_that_fails_after_an_epoch_is_named() -> None:
    schedule = {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 0}}
    rates = built(schedule=schedule)
    assert isinstance(rates, Rates)
    with pytest.raises(InputError, match="`schedule`: StepLR fails after an epoch \\(.*zero"):
        rates.set(rates.per_epoch)


def test_a_part_of_the_parameters_may_be_trained() -> None:
    """A method of one's own may freeze the rest, or leave it to another rule."""
    assert built(optimizer=lambda groups: torch.optim.SGD(next(iter(groups))["params"][:3], lr=0.1))


def test_as_many_peers_as_networks() -> None:
    assert coterie.PeerNet([TinyNet, TinyNet]).size == coterie.PeerNet([TinyNet, TinyNet], 2).size == 2
    assert coterie.PeerNet(TinyNet).size == 3


@pytest.mark.parametrize("name", list(available()))
@pytest.mark.parametrize("wrong", [-1, 5])
def test_labels_out_of_range_are_named_by_every_method(name: str, wrong: int) -> None:
    method = available()[name]
    cut = "stage3" if method.trains == "branches" else None
    net = coterie.PeerNet(TinyNet, 1 if method.trains == "one network" else 2, cut, VIEWS)
    instance: Any = method(net, **({"teacher": TinyNet()} if name == "KD" else {}))
    instance.prepare()
    with pytest.raises(InputError, match=r"Class numbers must be from 0 to 4, not"):
        instance([VIEWS] * instance.views, torch.tensor([0, 1, wrong, 3]), 0)
    if name != "MCL":  # which has no form for several labels an image
        instance.cross_entropy = coterie.CrossEntropy(task="multi_label")
        with pytest.raises(InputError, match=r"Class numbers must be from 0 to 4, not"):
            instance([VIEWS] * instance.views, torch.tensor([0, 1, wrong, 3]), 0)
