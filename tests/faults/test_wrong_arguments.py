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
from tests.helpers.common import small_recipe

IMAGES, LABELS = torch.zeros(20, 3, 8, 8, dtype=torch.uint8), torch.arange(20) % 2


def built(**options: Any) -> object:
    """Return what a training makes of a recipe before its first step."""
    recipe = small_recipe(method="Baseline", **options)
    recipe.data.load()
    optimizer = recipe.build_optimizer(recipe.build())
    return Rates(recipe.schedule, optimizer, recipe.epochs, recipe.steps_per_epoch)


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
