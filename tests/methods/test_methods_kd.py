"""KD's teacher: from a run, from a file, from Python; frozen, and nobody's."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import coterie
from coterie import models
from coterie.config.options import from_file, from_options
from coterie.config.recipe import Recipe
from coterie.errors import InputError
from coterie.peers.net import PeerNet
from coterie.runs.evaluate_run import evaluate_run
from coterie.training.loop import train_recipe
from tests.helpers.common import TinyNet

SMALL = {"data": {"class_path": "digits", "init_args": {"limit": 8}}, "epochs": 1, "batch": 40}


def kd(teacher: Path, **options: object) -> Recipe:
    method = {"class_path": "KD", "init_args": {"teacher": str(teacher), **options}}
    return from_options({**SMALL, "method": method, "model": "resnet8"})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished teacher."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    train_recipe(from_options({**SMALL, "method": "Baseline", "model": "resnet14"}), out)
    return out


def test_two_stages(run: Path, tmp_path: Path) -> None:
    """Teacher first, student second; the student's files hold nothing of the teacher."""
    method = train_recipe(kd(run), tmp_path / "student")
    teacher = method._teacher.network
    assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())
    expected = from_file(run / "config.yaml").build()
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    expected.load_state_dict(checkpoint["method"])
    images = torch.randn(4, *method.net.input_shape)
    with torch.no_grad():
        torch.testing.assert_close(teacher(images), expected.deploy()(images))
    student = models.factory("resnet8", 10, method.net.input_shape[0])()
    saved = torch.load(tmp_path / "student" / "checkpoint.pt", weights_only=True)["method"]
    assert len(saved) == len(student.state_dict())
    # The student can be evaluated where its teacher is not.
    assert from_file(tmp_path / "student" / "config.yaml").build().net.size == 1


def test_a_run_is_evaluated_without_its_teacher(run: Path, tmp_path: Path) -> None:

    moved = tmp_path / "teacher"
    moved.mkdir()
    for file in ("config.yaml", "student.safetensors"):
        (moved / file).write_bytes((run / file).read_bytes())
    train_recipe(kd(moved), tmp_path / "student")
    (moved / "config.yaml").unlink()
    assert "peer1" in evaluate_run(tmp_path / "student")["predictors"]


def test_a_file_of_weights(run: Path) -> None:
    file = run / "student.safetensors"
    teachers = []
    for options in ({}, {"teacher_model": "resnet14"}):  # the file says which network it is
        method = kd(file, **options).build()
        method.prepare()
        teachers.append(method._teacher.network)
    images = torch.randn(2, *method.net.input_shape)
    assert torch.equal(teachers[0](images), teachers[1](images))


def test_a_teacher_whose_weights_depend_on_the_image_size(tmp_path: Path) -> None:
    """A transformer's position embedding is one of its weights; what it started from is not asked for again."""
    vit = models.factory("timm:test_vit", 10, 1, size=(32, 32))()
    save_file(vit.state_dict(), tmp_path / "student.safetensors")
    (tmp_path / "config.yaml").write_text("model: timm:test_vit\nmodel_options: {pretrained: true}\n")
    student = PeerNet(models.factory("resnet8", 10, 1), 1, example=torch.randn(2, 1, 32, 32))
    method = coterie.KD(student, str(tmp_path))
    method.prepare()
    images = torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(method._teacher.network(images), vit.eval()(images))


def test_a_module_is_copied_and_frozen() -> None:
    own = TinyNet(width=12)
    method = coterie.KD(PeerNet(TinyNet, 1), own)
    method.keep_mean(0.9)
    before = {k: v.clone() for k, v in own.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.1)
    for epoch in range(2):
        method.train()
        method(torch.randn(4, 3, 8, 8), torch.arange(4), epoch)["loss"].backward()
        optimizer.step()
        method.after_step()
    assert own.training and all(p.requires_grad and p.grad is None for p in own.parameters())
    used = method._teacher.network
    assert not used.training and all(torch.equal(v, before[k]) for k, v in used.state_dict().items())
    assert not any("teacher" in name for name in method.state_dict())
    assert method.mean_method._teacher is method._teacher  # no copy in the average
    method.double()
    assert torch.isfinite(method(torch.randn(4, 3, 8, 8).double(), torch.arange(4), 0)["loss"])


def refusal(teacher: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        kd(teacher, **options).build().prepare()
    return str(caught.value)


def test_bad_teachers(run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.safetensors"
    save_file(load_file(run / "student.safetensors"), alone)
    assert "holds weights alone: name the network" in refusal(alone)
    assert "does not fit resnet8: the network does not have" in refusal(alone, teacher_model="resnet8")
    assert "does not fit resnet8" in refusal(run / "student.safetensors", teacher_model="resnet8")
    assert "is not a run directory" in refusal(tmp_path)
    assert "no run directory or weights file" in refusal(tmp_path / "nothing")
    junk = tmp_path / "junk.safetensors"
    junk.write_bytes(b"junk")
    assert "not a safetensors file" in refusal(junk, teacher_model="resnet14")
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    assert "finish that run" in refusal(tmp_path)


def test_a_teacher_with_other_classes(tmp_path: Path) -> None:
    file = tmp_path / "hundred.safetensors"
    channels = kd(file).data
    channels.load()
    save_file(models.factory("resnet14", 100, channels.shape[0])().state_dict(), file)
    message = refusal(file, teacher_model="resnet14")
    assert message.endswith("has 100 classes, but the data has 10.")
    colour = tmp_path / "other.safetensors"
    save_file(models.factory("resnet14", 10, channels.shape[0] + 1)().state_dict(), colour)
    assert "does not fit resnet14: stem.0.weight is" in refusal(colour, teacher_model="resnet14")
    with pytest.raises(InputError, match="The teacher knows 7 classes, the student 5"):
        coterie.KD(PeerNet(TinyNet, 1), TinyNet(classes=7)).prepare()


def test_a_teacher_is_made_for_the_size_of_the_images(tmp_path: Path) -> None:
    """As a vision transformer, whose position embeddings have the size of the images it was trained on."""
    code = """
        from torch import nn
        def sized(num_classes, in_channels, img_size=224):
            return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * img_size**2, num_classes))
    """
    (tmp_path / "own.py").write_text(textwrap.dedent(code))
    out = tmp_path / "teacher"
    train_recipe(from_options({**SMALL, "method": "Baseline", "model": f"{tmp_path}/own.py:sized"}), out)
    kd(out).build().prepare()
    assert "code that is not in the file" in refusal(out / "student.safetensors")
    kd(out / "student.safetensors", teacher_model=f"{tmp_path}/own.py:sized").build().prepare()


def test_a_teacher_of_peers_of_different_architectures(tmp_path: Path) -> None:
    """The first peer is deployed, whatever `model` is by default."""
    train_recipe(from_options({**SMALL, "method": "DML", "peers": "resnet14,resnet8"}), tmp_path / "teacher")
    method = kd(tmp_path / "teacher").build()
    method.prepare()
    assert len(method._teacher.network.stage1) == 2


def test_a_bad_teacher_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run directory"):
        train_recipe(kd(tmp_path / "no"), tmp_path / "out")
    with pytest.raises(InputError, match=r"^`method.teacher` is missing"):
        from_options({"method": "KD"})
    assert not (tmp_path / "out").exists()
