"""Run directories from strangers: without `--trust`, no code that they name is run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import coterie
from coterie.errors import InputError
from tests.helpers.common import build_once, printed, refused, train

MAKE = """
from pathlib import Path
from coterie.models.resnet import resnet8 as make
import torch
from coterie.data.digits import digits
from coterie.methods.baseline import Baseline
class Set(digits): ...
class Method(Baseline): ...
class Optimizer(torch.optim.SGD): ...
class Rate(torch.optim.lr_scheduler.ConstantLR): ...
def call(*arguments, **options): Path("ran").touch()
"""


@pytest.fixture(scope="module")
def strange_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of Baseline, as anyone could have made it: it names no code of a user's own."""
    return build_once(tmp_path_factory, "strange_run", lambda out: train(out, "--method=Baseline", "--epochs=1"))


@pytest.fixture
def stranger(strange_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a stranger's run `run` and `evil.py`, which writes the file `ran`."""
    shutil.copytree(strange_run, tmp_path / "run")
    (tmp_path / "evil.py").write_text(f"{MAKE}\nPath('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    for module in ("evil", "coterie_user_evil"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)  # as where Python is started in this folder
    return tmp_path


def change(run: Path, **options: Any) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | options, sort_keys=False))


SGD = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
ATTACKS: dict[str, dict[str, Any]] = {
    "model file": {"model": "evil.py:make"},
    "model module": {"model": "evil:make"},
    "peers": {"peers": "resnet8,evil.py:make", "method": "coterie.DML"},
    "method": {"method": {"class_path": "evil.Method"}},
    "method by name": {"method": "evil.Method"},
    "data": {"data": {"class_path": "evil.Set", "init_args": {"limit": 30}}},
    "data source": {"data": {"class_path": "coterie.data.wrapped.dataset", "init_args": {"source": "evil.Set"}}},
    "source's options": {
        "data": {
            "class_path": "coterie.data.wrapped.dataset",
            "init_args": {"source": "torchvision.datasets.FakeData", "options": {"transform": "evil.call"}},
        }
    },
    "loader": {
        "data": {
            "class_path": "torchvision.datasets.DatasetFolder",
            "init_args": {"root": ".", "loader": "evil.call", "extensions": [".png"]},
        }
    },
    "unpickles": {"data": {"class_path": "torchvision.datasets.LSUN", "init_args": {"root": "evil"}}},
    "optimizer": {"optimizer": {"class_path": "evil.Optimizer", "init_args": {"lr": 0.1}}},
    "optimizer by name": {"optimizer": "evil.Optimizer"},
    "schedule": {"schedule": {"class_path": "evil.Rate"}},
    "callable": {
        "schedule": {"class_path": "torch.optim.lr_scheduler.LambdaLR", "init_args": {"lr_lambda": "evil.call"}}
    },
    "nested": {
        "schedule": {
            "class_path": "torch.optim.lr_scheduler.ChainedScheduler",
            "init_args": {"schedulers": [{"class_path": "evil.Rate"}]},
        }
    },
    "mix": {"mix": {"class_path": "evil.call"}},
    "teacher": {"method": {"class_path": "coterie.KD", "init_args": {"teacher": {"class_path": "evil.Method"}}}},
    "teacher's model": {
        "method": {
            "class_path": "coterie.KD",
            "init_args": {"teacher": "run/student.safetensors", "teacher_model": "evil.py:make"},
        }
    },
    "further arguments": {"optimizer": {**SGD, "dict_kwargs": {"foreach": {"class_path": "evil.call"}}}},
    "text of a spec": {
        "method": {"class_path": "coterie.KD", "init_args": {"teacher": "{class_path: evil.Method}"}}
    },
    "escaped text of a spec": {
        "schedule": {
            "class_path": "torch.optim.lr_scheduler.LambdaLR",
            "init_args": {"lr_lambda": '{"class\\x5fpath": "evil.call"}'},
        }
    },
    "escaped text in a list": {
        "schedule": {
            "class_path": "torch.optim.lr_scheduler.LambdaLR",
            "init_args": {"lr_lambda": '[{"class\\x5fpath": "evil.call"}]'},
        }
    },
    "escaped text for a class of ours": {
        "method": {"class_path": "coterie.KD", "init_args": {"teacher": '{"class\\x5fpath": "evil.Method"}'}}
    },
    "quoted path": {
        "schedule": {
            "class_path": "torch.optim.lr_scheduler.LambdaLR",
            "init_args": {"lr_lambda": "'evil.call' # a comment"},
        }
    },
    "a space before a library": {"model": " timm:make"},
    "key with a dot": {"optimizer": {"class_path": "torch.optim.SGD", "init_args.foreach": "evil.call"}},
    "option with a dot": {"optimizer.class_path": "evil.Optimizer"},
    "another config": {"config": "other.yaml"},
    "a file as a class": {"optimizer": "spec"},
    "a file as an argument": {
        "schedule": {
            "class_path": "torch.optim.lr_scheduler.ChainedScheduler",
            "init_args": {"schedulers": ["schedule"]},
        }
    },
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_code_of_a_strangers_run_is_run(stranger: Path, attack: str) -> None:
    (stranger / "other.yaml").write_text("method: evil.Method\n")
    (stranger / "spec").write_text("class_path: evil.Optimizer\n")
    (stranger / "schedule").write_text("class_path: evil.Rate\n")
    shutil.copy(stranger / "evil.py", stranger / " timm.py")
    change(stranger / "run", **ATTACKS[attack])
    for command in (["evaluate", "run"], ["export", "run"], ["export", "run", "--predictor", "peer1"]):
        sentence = refused(*command)
        assert not (stranger / "ran").exists(), command
        assert any(part in sentence for part in ("add --trust", "names code that is not here", "There is no opti"))
    run = coterie.load("run")
    for use in (run.student, run.predictors, run.evaluate):
        with pytest.raises(InputError):
            use()
    printed("report", "run", "-o", "page.html")
    printed("report", "run", "--text")
    run.report("page.html")
    assert not (stranger / "ran").exists()
