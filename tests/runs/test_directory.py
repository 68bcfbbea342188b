"""A run directory: what it holds, and that a run of an older version goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from coterie.errors import InputError
from coterie.models import factory
from coterie.runs.directory import RunDirectory
from coterie.training.loop import train_recipe
from tests.helpers.common import small_recipe as recipe


def test_a_run_directory_explains_itself(tmp_path: Path) -> None:
    method = train_recipe(recipe(ema=True, method="Baseline"), tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    records = run.metrics()
    assert [r["epoch"] for r in records] == [0, 1, 2, 3]
    assert set(records[-1]["predictors"]) == {"peer1", "mean1"}
    assert set(records[-1]["predictors"]["peer1"]) >= {"error", "balanced_error", "top5_error", "nll", "ece"}
    assert records[-1]["terms"]["loss"] == pytest.approx(records[-1]["terms"]["ce"])
    assert records[-1]["lr"] == pytest.approx(0.001) and records[0]["lr"] == pytest.approx(0.1)
    config = yaml.safe_load(run.config.read_text())
    assert config["seed"] == 0 and config["optimizer"]["init_args"]["nesterov"] is True
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["torch"] == torch.__version__ and environment["seed"] == 0
    plain = factory("resnet8", 10, 1)()
    plain.load_state_dict(load_file(run.student), strict=True)
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(plain.eval()(images), method.deploy()(images))
    assert torch.allclose(plain(images), method.eval().predictors()["peer1"](images), atol=1e-5)
    torch.load(run.checkpoints.newest, weights_only=True)


def test_a_run_from_before_an_option_existed_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_recipe(recipe(epochs=1), out)
    old = yaml.safe_load((out / "config.yaml").read_text())
    del old["evaluate_every"]
    (out / "config.yaml").write_text(yaml.safe_dump(old))
    train_recipe(recipe(epochs=1), out)  # the option's default is what that run had
    (out / "config.yaml").write_text(yaml.safe_dump(old))
    with pytest.raises(InputError, match="evaluate_every was 1, is 2"):
        train_recipe(recipe(epochs=1, evaluate_every=2), out)
