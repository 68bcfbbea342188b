"""Runs that name code of a user's own: the user who trained them needs nothing, anyone else `--trust`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

import coterie
from coterie.errors import InputError
from coterie.trust import SIGNATURE
from tests.helpers.common import build_once, printed, refused, train

NET = "from pathlib import Path\nfrom coterie.models.resnet import resnet8 as make\nPath('ran').touch()\n"
SET = """
from coterie.data.digits import digits
class Mine(digits):
    def __init__(self, root: str = "data", limit: int | None = None) -> None:
        super().__init__(limit=limit)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the code net.py and sets.py, and the run `run` that was trained with it."""

    def build(folder: Path) -> None:
        (folder / "net.py").write_text(NET)
        (folder / "sets_of_mine.py").write_text(SET)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", list(sys.path))
            data = ["--data", "sets_of_mine.Mine", "--data.limit", "10"]
            train(Path("run"), "--method=Baseline", "--model=net.py:make", "--epochs=1", "--batch=32", *data)

    return build_once(tmp_path_factory, "project", build)


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    forget(monkeypatch)
    (project / "ran").unlink(missing_ok=True)
    return project


@pytest.fixture
def elsewhere(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The whole folder on another machine: there the user has another key."""
    shutil.copytree(project, tmp_path / "copy")
    (tmp_path / "copy" / "ran").unlink(missing_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "copy")
    forget(monkeypatch)
    return tmp_path / "copy"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("coterie_user_net", "sets_of_mine"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_ones_own_run_needs_nothing(here: Path) -> None:
    printed("evaluate", "run")
    assert (here / "ran").exists()
    printed("export", "run", "-o", "student.safetensors")
    assert coterie.load("run").student() is not None
    assert (here / "run" / SIGNATURE).stat().st_size == 65


def test_the_same_run_elsewhere_needs_trust(elsewhere: Path) -> None:
    sentence = refused("evaluate", "run")
    files = f"net.py:make in {elsewhere / 'net.py'}, sets_of_mine.Mine in {elsewhere / 'sets_of_mine.py'}"
    assert sentence == (
        f"run was not trained by you on this machine, and it names code of its own ({files}): read that code, and "
        "if you trust it, add --trust."
    )
    assert refused("export", "run") == sentence
    with pytest.raises(InputError, match="add `trust`"):
        coterie.load("run").student()
    assert not (elsewhere / "ran").exists()
    printed("evaluate", "run", "--trust")
    assert (elsewhere / "ran").exists()
    printed("export", "run", "-o", "student.safetensors", "--trust")
    coterie.load("run", trust=True).student()


def test_a_signature_is_for_these_options_and_this_code(here: Path, tmp_path: Path) -> None:
    config, run = here / "run" / "config.yaml", tmp_path / "run"
    shutil.copytree(here / "run", run)
    printed("evaluate", run)  # a run may be moved
    options = yaml.safe_load(config.read_text())
    data = options["data"]
    moved = {**data, "init_args": {**data["init_args"], "root": "moved"}}
    (run / "config.yaml").write_text(yaml.safe_dump({**options, "data": moved}))
    printed("evaluate", run)  # and so may its data
    for change in (
        {"model_options": {"width": 2}},
        {"model": "./net.py:make"},
        {"data": {**data, "init_args": {**data["init_args"], "limit": 11}}},
        {"method": {"class_path": "coterie.KD", "init_args": {"teacher": "x"}}},
    ):
        (run / "config.yaml").write_text(yaml.safe_dump({**options, **change}))
        assert "add --trust" in refused("evaluate", run)
    (run / "config.yaml").write_text(config.read_text())
    shutil.copy(here / "net.py", tmp_path)
    shutil.copy(here / "sets_of_mine.py", tmp_path)
    (tmp_path / "sets_of_mine.py").write_text("open('ran', 'w')\n")
    assert "add --trust" in refused("evaluate", "run", cwd=tmp_path)  # the same names, other files
    assert not (tmp_path / "ran").exists()
    (tmp_path / "net.py").unlink()
    assert (
        refused("evaluate", "run", cwd=tmp_path)
        == "run names code that is not here, net.py:make: go to where it is."
    )


def test_the_teacher_of_a_strangers_run(elsewhere: Path) -> None:
    teach = ["train", "--method=KD", "--method.teacher=run", "--model=resnet8", "--epochs=1", "--data.limit=10"]
    teach += ["--batch=32", "--out"]
    sentence = refused(*teach, "student")
    assert f"net.py:make in {elsewhere / 'net.py'}" in sentence and sentence.endswith("add --trust.")
    assert not (elsewhere / "ran").exists() and not (elsewhere / "student").exists()
    printed(*teach, "student", "--trust")
    assert "trust" not in (elsewhere / "student" / "config.yaml").read_text()
    printed(*teach, "named", "--method.teacher_model=net.py:make")


def test_the_teacher_of_ones_own_run(here: Path) -> None:
    teach = [
        "--method=KD",
        "--method.teacher=run",
        "--model=resnet8",
        "--epochs=1",
        "--data.limit=10",
        "--batch=32",
    ]
    printed("train", *teach, "--out", "taught")
    printed("evaluate", "taught")
    assert (here / "ran").exists()


def test_weights_cannot_name_other_code_than_their_signed_run(here: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from coterie.models.metadata import read_metadata

    run, student = shutil.copytree(here / "run", tmp_path / "run"), tmp_path / "run" / "student.safetensors"
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'evil ran')!r}, 'w')\ndef make(): ...\n")
    metadata = read_metadata(student)
    assert metadata is not None
    metadata.model["name"] = f"{tmp_path / 'evil.py'}:make"
    save_file(load_file(student), student, {"coterie": metadata.to_json()})
    teach = ["--method=KD", f"--method.teacher={run}", "--model=resnet8", "--epochs=1", "--data.limit=10"]
    printed("train", *teach, "--batch=32", "--out", tmp_path / "taught")
    assert not (tmp_path / "evil ran").exists()


def test_a_run_is_continued_only_with_the_code_that_the_command_names(elsewhere: Path) -> None:
    command = ["train", "--method=Baseline", "--epochs=1", "--batch=32", "--out=run", "--data.limit=10"]
    sentence = refused(*command, "--model=resnet8")
    assert "another configuration (it names net.py:make, sets_of_mine.Mine)" in sentence
    assert not (elsewhere / "ran").exists()
    printed(*command[:-1], "--model=net.py:make", "--data=sets_of_mine.Mine", "--data.limit=10")
    printed("evaluate", "run")  # signed by the user who named its code


def test_a_home_that_cannot_be_written(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    arguments = ["--method=Baseline", "--model=net.py:make", "--epochs=1", "--data.limit=10", "--batch=32"]
    _, err = printed("train", *arguments, "--out", tmp_path / "run")
    assert err.count("cannot be signed as your run") == 1
    assert "add --trust" in refused("evaluate", tmp_path / "run")
    printed("evaluate", tmp_path / "run", "--trust")


def test_the_key_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coterie.trust import sign

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = sign({"model": "net.py:make"})
    assert first is not None and first == sign({"model": "net.py:make"}) != sign({"model": "net.py:other"})
    (key,) = (tmp_path / "coterie").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    key.unlink()
    assert sign({"model": "net.py:make"}) != first
