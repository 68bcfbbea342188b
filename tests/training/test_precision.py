"""`--precision auto`, and which kernels step when a run is continued on another device."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch.optim import Adam, Optimizer

from coterie.config.recipe import Recipe
from coterie.config.schedule import Rates
from coterie.errors import InputError
from coterie.methods import Method
from coterie.training.distributed import World
from coterie.training.loop import train_recipe
from coterie.training.meters import LossMeter
from coterie.training.precision import Precision
from coterie.training.state import TrainingState
from coterie.training.step import Step
from tests.helpers.common import small_recipe
from tests.helpers.engine import same

CPU = torch.device("cpu")


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "32")])
def test_auto_is_bf16_where_the_gpu_has_it(
    supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert Precision(torch.device("cuda", 1), "auto").format == expected
    assert Precision(CPU, "auto").format == Precision(torch.device("mps"), "auto").format == "32"
    assert Precision(CPU, "bf16").format == "bf16"


def test_auto_on_a_cpu_is_a_run_of_32_and_recorded(tmp_path: Path) -> None:
    options = {"device": "cpu", "epochs": 1, "method": "Baseline"}
    for name in ("32", "auto"):
        train_recipe(small_recipe(**options, precision=name), tmp_path / name)
    plain, automatic = (torch.load(tmp_path / name / "checkpoint.pt")["method"] for name in ("32", "auto"))
    assert same(plain, automatic)
    resolved = [json.loads((tmp_path / name / "resolved.json").read_text()) for name in ("32", "auto")]
    assert "precision" not in resolved[0] and resolved[1]["precision"] == "32"


def test_a_run_is_not_continued_in_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"device": "cpu", "epochs": 1, "method": "Baseline", "precision": "auto"}
    train_recipe(small_recipe(**options), tmp_path / "run")
    monkeypatch.setattr("coterie.training.precision.choose_format", lambda format, device: "bf16")
    with pytest.raises(InputError, match="precision is not what it was when the run began"):
        train_recipe(small_recipe(**options), tmp_path / "run")


def state_of(recipe: Recipe, method: Method, optimizer: Optimizer) -> TrainingState:
    rates = Rates(recipe.schedule, optimizer, recipe.epochs, 3)
    return TrainingState(method, optimizer, rates, Precision(CPU), LossMeter(CPU))


@pytest.mark.parametrize("before", [None, True])
@pytest.mark.parametrize("after", [None, True])
def test_a_continued_run_steps_with_the_kernels_of_its_own_device(before: bool | None, after: bool | None) -> None:
    """Adam keeps its step count where its kernels want it; torch has fused kernels on CPUs too."""
    recipe = small_recipe(method="Baseline", device="cpu")
    views, labels = torch.randn(4, 1, 8, 8), torch.arange(4)
    first, second = recipe.build().train(), recipe.build().train()
    old, new = Adam(first.parameters(), fused=before), Adam(second.parameters(), fused=after)
    Step(first, old, Precision(CPU))([views], labels, 0)
    saved = copy.deepcopy(state_of(recipe, first, old).capture(World(CPU)))
    state_of(recipe, second, new).restore(saved, World(CPU))
    assert new.param_groups[0]["fused"] is after
    for method, optimizer in ((first, old), (second, new)):
        Step(method, optimizer, Precision(CPU))([views], labels, 0)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
