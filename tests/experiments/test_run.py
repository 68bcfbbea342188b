"""`coterie.train` and `coterie.load`: the command's training, from Python objects, and what a Run gives."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
import yaml
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import coterie
from coterie.config.options import NOT_OPTIONS, PARTS, from_options
from coterie.config.recipe import Recipe
from coterie.data.digits import digits

from ..helpers.common import TinyNet, build_once, not_on_windows
from ..helpers.common import coterie as command
from ..helpers.photographs import photographs

DIGITS: dict[str, Any] = {"data": "digits", "data_options": {"limit": 5}, "epochs": 1, "batch": 25}
SMALL: dict[str, Any] = {"model": "resnet8", "epochs": 2, "batch": 50, "data_options": {"limit": 10}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> coterie.Run:
    """A run by `coterie.train`, of PCL with names for everything."""
    folder = build_once(tmp_path_factory, "python_run", lambda out: coterie.train(**SMALL, out=out / "run"))
    return coterie.load(folder / "run")


def make_tiny(num_classes: int, in_channels: int) -> TinyNet:
    return TinyNet(num_classes, channels=in_channels)


def pixels(count: int) -> tuple[Tensor, Tensor]:
    """Images whose brightness is their class."""
    labels = torch.arange(count) % 3
    noise = torch.randint(0, 40, (count, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    return (noise + 80 * labels[:, None, None, None]).byte(), labels


class Pairs(Dataset[tuple[Tensor, int]]):
    """The same as items of a Dataset, without the labels as an attribute."""

    def __init__(self, count: int) -> None:
        self.images, self.numbers = pixels(count)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.numbers[index])


def test_the_call_and_the_command_train_the_same_to_the_bit(run: coterie.Run, tmp_path: Path) -> None:
    options = ["--model", "resnet8", "--epochs", 2, "--batch", 50, "--data.limit", 10]
    result = command("train", *options, "--out", tmp_path / "command")
    assert result.returncode == 0, result.stderr
    ours, theirs = (
        safetensors.torch.load_file(path / "student.safetensors") for path in (run.path, tmp_path / "command")
    )
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert (run.path / "config.yaml").read_text() == (tmp_path / "command" / "config.yaml").read_text()


def test_names_and_defaults_are_those_of_the_command() -> None:
    parameters = dict(inspect.signature(coterie.train).parameters)
    del parameters["out"], parameters["restart"]
    for part in PARTS:
        assert parameters.pop(f"{part}_options").default is None
    options = {field.name: field for field in fields(Recipe) if field.name not in NOT_OPTIONS}
    assert list(parameters) == list(options)
    for name, field in options.items():
        if field.default is not MISSING and name != "method":
            assert parameters[name].default == field.default, name
    named = {name: p.default for name, p in parameters.items() if name != "model_options"}
    assert from_options(named).config == from_options({}).config  # names of classes stand for the same defaults


@pytest.mark.parametrize("data", ["tensors", "datasets", "folder", "Data", "name"])
def test_every_form_of_data_trains(data: str, tmp_path: Path) -> None:
    forms: dict[str, Any] = {
        "tensors": (pixels(60), pixels(30)),
        "datasets": (Pairs(60), Pairs(30)),
        "folder": photographs(tmp_path / "photographs", 6, 3) if data == "folder" else None,
        "Data": digits(limit=5),
        "name": "digits",
    }
    options = {"data_options": {"size": 32}} if data == "folder" else {}
    run = coterie.train(
        model=make_tiny, data=forms[data], method="Baseline", epochs=1, batch=10, out=tmp_path / "run", **options
    )
    assert run.finished and 0 <= run.error <= 100
    objects = {"data": forms[data]} if data in ("tensors", "datasets", "Data") else {}
    assert coterie.load(run.path, **objects).evaluate()["predictors"]["peer1"]["error"] == pytest.approx(run.error)


def test_a_pair_of_datasets_and_their_tensors_train_the_same(tmp_path: Path) -> None:
    for name, data in (("tensors", (pixels(60), pixels(30))), ("datasets", (Pairs(60), Pairs(30)))):
        options = {"method": coterie.DML, "peers": 2, "epochs": 4, "batch": 10, "out": tmp_path / name}
        coterie.train(model=make_tiny, data=data, **options)  # type: ignore[arg-type]
    ours, theirs = (coterie.load(tmp_path / name, data=(Pairs(60), Pairs(30))) for name in ("tensors", "datasets"))
    assert ours.error == theirs.error < 40
    for a, b in zip(ours.student().parameters(), theirs.student().parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_network_and_a_local_method_train(tmp_path: Path) -> None:
    class Quiet(coterie.Baseline):
        """A method that no file can name."""

    network = TinyNet(10, channels=1)
    run = coterie.train(
        model=network,
        method=Quiet,
        data="digits",
        data_options={"limit": 5},
        epochs=1,
        batch=25,
        out=tmp_path / "run",
    )
    assert type(run.student()) is TinyNet and run.student() is not network
    method = yaml.safe_load((run.path / "config.yaml").read_text())["method"]
    assert method["class_path"].startswith("<") and method["init_args"] == {"views": 1}
    with pytest.raises(coterie.InputError, match=r"`method` .* Python object was given \(<.*Quiet in .*load\("):
        coterie.load(run.path, model=network).predictors()
    with pytest.raises(coterie.InputError, match=r"method.views was 1, is 2"):
        coterie.train(model=network, method=Quiet, method_options={"views": 2}, out=run.path, **DIGITS)
    assert list(coterie.load(run.path, model=network, method=Quiet).predictors()) == ["peer1"]


SCRIPT = """
import os, sys, threading, time
from pathlib import Path
import coterie
from tests.helpers.common import TinyNet

def stop_after(records):
    file = Path("run/metrics.jsonl")
    while not file.exists() or len(file.read_text().splitlines()) < records:
        time.sleep(0.01)
    os.kill(os.getpid(), 15)

if len(sys.argv) > 1:
    threading.Thread(target=stop_after, args=(2,), daemon=True).start()
run = coterie.train(model=lambda: TinyNet(10, channels=1), method="PCL", cut="stage3", data="digits",
                    data_options={"limit": 5}, epochs=8, batch=10, ema_horizon=0.05, checkpoint_every="0s",
                    out="run")
print(repr(run))
"""


@not_on_windows
def test_objects_that_no_file_holds_are_continued_by_the_same_script(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        folder.mkdir(exist_ok=True)
        (folder / "script.py").write_text(SCRIPT)
        program = [sys.executable, "script.py", *arguments]
        return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)

    stopped = start(tmp_path / "stopped", "stop")
    assert stopped.returncode != 0 and "Stopped" in stopped.stderr
    warnings = [line for line in stopped.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1 and "`model` <lambda in script.py>" in warnings[0]
    assert "only the same script or notebook can continue this run" in warnings[0]
    refused = command("evaluate", tmp_path / "stopped" / "run")
    assert refused.returncode == 2 and "Python object was given (<lambda in script.py>)" in refused.stderr
    done, whole = start(tmp_path / "stopped"), start(tmp_path / "whole")
    assert done.returncode == whole.returncode == 0, done.stderr + whole.stderr
    assert done.stdout == whole.stdout and "8 of 8 epochs" in done.stdout
    ours, theirs = (
        safetensors.torch.load_file(tmp_path / name / "run" / "student.safetensors")
        for name in ("stopped", "whole")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_run_gives_its_records_networks_files_and_tables(run: coterie.Run, tmp_path: Path) -> None:
    assert [record["epoch"] for record in run.metrics] == [0, 1] and run.config["model"] == "resnet8"
    assert run.error == run.metrics[-1]["predictors"]["mean1"]["error"]
    frame = run.to_pandas()
    assert frame["predictors.mean1.error"].iloc[-1] == run.error and len(frame) == 2
    student, weights = run.student(), safetensors.torch.load_file(run.path / "student.safetensors")
    assert not student.training and student.state_dict().keys() == weights.keys()
    predictors = run.predictors()
    assert {"peer1", "mean3", "ensemble"} <= predictors.keys()
    image = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(predictors["mean1"](image), student(image))
        expected = student(image).numpy()
    session = onnxruntime.InferenceSession(run.export(tmp_path / "student.onnx"))
    (logits,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert "<html" in run.report(tmp_path / "page.html").read_text()
    assert repr(run) == f"Run('{run.path}': PCL, resnet8 on digits, 2 of 2 epochs, error {run.error:.2f} %)"
    assert run._repr_html_().count("<tr>") == 1 + len(predictors) and "mean1 (deployed)" in run._repr_html_()


def test_bad_input_is_one_sentence_of_python(run: coterie.Run, tmp_path: Path) -> None:
    def refuses(match: str, **options: Any) -> None:
        with pytest.raises(coterie.InputError, match=match) as error:
            coterie.train(**{"out": tmp_path / "run", "model": "resnet8", **options})
        assert "--" not in str(error.value) and not (tmp_path / "run").exists()

    refuses("There is no method 'PLC'; did you mean 'PCL'?", method="PLC")
    refuses("`epochs` must be at least 1, not 0", epochs=0)
    refuses("`method` must be a name, a class of methods", method=lambda net: coterie.PCL(net))
    refuses(
        r"`optimizer_options` are for a name or a class", optimizer=lambda p: None, optimizer_options={"lr": 1}
    )
    refuses(r"needs two data sets: a pair \(training set, test set\)", data=Pairs(10))
    refuses("There is no option 'method.temprature'", method_options={"temprature": 2})
    refuses("There is no option 'data.limt'; did you mean 'data.limit'", data_options={"limt": 3})
    refuses("`data.limit` expects a whole number, not 'many'", data_options={"limit": "many"})
    refuses("There is no option 'schedule.flor'", schedule="Cosine", schedule_options={"flor": 1})
    refuses("There is no option 'mix.prob'", mix="CutMix", mix_options={"prob": 1})
    refuses("There is no mix 'cutmix'; did you mean 'CutMix'", mix="cutmix")
    refuses("There is no data set or directory 'photoss'", data="photoss")
    refuses("returned int, not a torch.nn.Module", model=lambda: 3)
    refuses(
        "`model_options` are for a network that is made", model=TinyNet(10, channels=1), model_options={"a": 1}
    )
    images, labels = pixels(20)
    refuses("`data` is a name, a path, a pair .* not int", data=3)
    refuses("is a DataLoader: give its Dataset", data=(DataLoader(Pairs(4)), Pairs(4)))
    refuses(r"\(images, labels\) of equal length", data=((images, labels[:3]), (images, labels)))
    refuses(r"give them as \(N, C, H, W\)", data=((images.repeat(1, 3, 1, 1).movedim(1, 3), labels),) * 2)
    refuses(
        "Test images of tensors of 20 images have the shape", data=((images, labels), (images[..., 1:], labels))
    )
    refuses("must be a Dataset with a length", data=(iter([]), Pairs(4)))
    with pytest.raises(coterie.InputError, match="is not a run directory: it has no config.yaml"):
        coterie.load(tmp_path)
    with pytest.raises(coterie.InputError, match="There is no option 'modle'; did you mean 'model'"):
        coterie.load(run.path, modle=3)
    with pytest.raises(coterie.InputError, match="`epochs` is read from .*config.yaml: leave it out"):
        coterie.load(run.path, epochs=3)
    with pytest.raises(coterie.InputError, match="`quantize` is 'int8' or None, not 'int4'"):
        run.export(tmp_path / "student.onnx", quantize="int4")  # type: ignore[arg-type]
    with pytest.raises(
        coterie.InputError, match="of the endings .safetensors, .onnx, .pt2, .pth, .pt, .pte: give `format`"
    ):
        run.export(tmp_path / "student.tflite")
    with pytest.raises(coterie.InputError, match="`file` must be a path, not None"):
        run.export(None)  # type: ignore[arg-type]
    with pytest.raises(coterie.InputError, match="`size` must be a whole number of pixels, not '8'"):
        run.export(tmp_path / "student.pth", size="8")  # type: ignore[arg-type]
    with pytest.raises(coterie.InputError, match="`file` must be a path, not None"):
        run.report(None)  # type: ignore[arg-type]
    with pytest.raises(coterie.InputError, match=r"^\. names no file: choose another `output`"):
        run.report(".")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.yaml").write_text((run.path / "config.yaml").read_text())
    with pytest.raises(coterie.InputError, match="has no student.safetensors yet"):
        coterie.load(unfinished).student()
    with pytest.raises(coterie.InputError, match="has no record yet"):
        coterie.load(unfinished).error  # noqa: B018


def test_a_plain_callable_without_a_name_makes_networks(tmp_path: Path) -> None:
    class Maker:
        def __call__(self, num_classes: int) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

    run = coterie.train(
        model=Maker(),
        method="Baseline",
        data="digits",
        data_options={"limit": 5},
        epochs=1,
        batch=25,
        out=tmp_path / "r",
    )
    assert isinstance(run.student(), nn.Sequential) and "Maker" in repr(run)


class Renamed(Pairs):
    """Labels that the set renames: `targets` are those before."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.targets, self.target_transform = self.numbers, lambda label: 2 - label

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.target_transform(self.numbers[index]))


def test_labels_are_those_of_the_items_and_arrays_may_be_numpys() -> None:
    data = from_options({"data": (Renamed(6), Renamed(3))}).data
    data.load()
    assert data.labels["train"].tolist() == [2, 1, 0, 2, 1, 0]
    images, labels = (array.numpy() for array in pixels(6))
    data = from_options({"data": [(images, labels), (images, labels)]}).data
    data.load()
    assert data.labels["test"].tolist() == labels.tolist() and data.title == "tensors of 6 images"


def test_training_leaves_the_callers_random_numbers_and_says_when_nothing_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    options = {"model": make_tiny, "method": "Baseline", "out": tmp_path / "run", **DIGITS}
    first = coterie.train(**options)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # type: ignore[index]
    assert "nothing is trained" not in capfd.readouterr().err
    assert coterie.train(**options).error == first.error
    assert "was finished before: nothing is trained" in capfd.readouterr().err


def test_a_second_thread_is_refused_and_the_first_goes_on_undisturbed(tmp_path: Path) -> None:
    begun, refused = threading.Event(), threading.Event()

    def make_when_refused(num_classes: int, in_channels: int) -> TinyNet:
        begun.set()
        assert refused.wait(60)
        return make_tiny(num_classes, in_channels)

    def train(name: str, model: Any) -> coterie.Run:
        return coterie.train(model=model, method="Baseline", out=tmp_path / name, **DIGITS)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(train, "first", make_when_refused)
        assert begun.wait(60)
        with pytest.raises(coterie.InputError, match="Another thread of this process is training: train"):
            train("first", make_tiny)
        refused.set()
        weights = first.result().student().state_dict()
    alone = train("alone", make_tiny).student().state_dict()
    assert all(torch.equal(weights[name], alone[name]) for name in alone)


def test_a_run_is_found_from_another_directory_and_its_student_without_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = (pixels(30), pixels(30))
    run = coterie.train(model=make_tiny, data=data, method="Baseline", epochs=1, batch=10, out="run")
    monkeypatch.chdir("/")
    assert run.finished and isinstance(coterie.load(run.path).student(), TinyNet)
    assert run.evaluate(data)["predictors"]["peer1"]["error"] == pytest.approx(run.error)


TWICE = """
import coterie
for out in ("first", "second"):
    run = coterie.train(model="resnet8", data="digits", data_options={"limit": 5}, method="Baseline", epochs=1,
                        batch=16, out=out)
    assert run.finished
"""


def test_two_trainings_of_one_script_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TWICE)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "twice.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert coterie.load(tmp_path / "second").error == coterie.load(tmp_path / "first").error
