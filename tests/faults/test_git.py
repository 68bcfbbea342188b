"""A stranger's repository: recording its commit starts no program that its settings name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coterie.runs import environment


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


@pytest.fixture
def bomb(tmp_path: Path) -> Path:
    """A program that writes the file `ran` and passes its input on."""
    program = tmp_path / "bomb.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\ncat\n")
    program.chmod(0o755)
    return program


def touch(folder: Path) -> None:
    """Write the same content again, so that git must read it to know."""
    (folder / "a.txt").unlink()
    (folder / "a.txt").write_text("one")


def test_the_commit_and_whether_files_differ(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert environment._commit(repository) == commit
    touch(repository)
    (repository / "untracked").touch()
    assert environment._commit(repository) == commit
    (repository / "a.txt").write_text("two")
    assert environment._commit(repository) == f"{commit}-dirty"
    git(repository, "add", ".")
    assert environment._commit(repository) == f"{commit}-dirty"
    assert environment._commit(repository.parent) is None


@pytest.mark.parametrize("name", ["x", "x=y", "a b"])
def test_filters_of_a_repository_are_not_run(repository: Path, bomb: Path, name: str) -> None:
    ran = bomb.parent / "ran"
    git(repository, "config", f"filter.{name}.clean", str(bomb))
    git(repository, "config", f"filter.{name}.required", "true")
    (repository / ".gitattributes").write_text("".join(f"*.txt filter={n}\n" for n in [name.split()[0]]))
    if " " in name:  # no attribute can name it
        git(repository, "config", "filter.a.clean", str(bomb))
    touch(repository)
    assert str(environment._commit(repository)).startswith(git(repository, "rev-parse", "HEAD"))
    assert not ran.exists()
    git(repository, "status")
    assert ran.exists()  # it would have


def test_monitors_and_hooks_are_not_run(repository: Path, bomb: Path) -> None:
    ran = bomb.parent / "ran"
    git(repository, "config", "core.fsmonitor", str(bomb))
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "post-index-change").write_text(bomb.read_text())
    (repository / ".git" / "hooks" / "post-index-change").chmod(0o755)
    touch(repository)
    assert environment._commit(repository) is not None
    assert not ran.exists()
    git(repository, "status")
    assert ran.exists()  # it would have


def test_submodules_are_not_looked_into(repository: Path, bomb: Path) -> None:
    ran, other = bomb.parent / "ran", bomb.parent / "other"
    git(bomb.parent, "clone", "-q", str(repository), str(other))
    git(repository, "submodule", "add", "-q", str(other), "part")
    git(repository, "commit", "-qm", "two")
    git(repository / "part", "config", "core.fsmonitor", str(bomb))
    touch(repository / "part")
    assert environment._commit(repository) == git(repository, "rev-parse", "HEAD")
    assert not ran.exists()
    git(repository, "status")
    assert ran.exists()  # it would have


def test_a_git_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(environment, "GIT_SECONDS", 0.2)
    assert environment._commit(tmp_path) is None
