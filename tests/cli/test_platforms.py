"""The commands without what Windows lacks: no fork, no fcntl, no UTF-8 by default, files in use not replaced."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import coterie.signals
from coterie.errors import Failure
from coterie.files import PATIENCE, atomic_path, replace, write
from tests.helpers.common import not_on_windows, picture, printed

ROOT = Path(__file__).parents[2]
HELPER = ROOT / "tests" / "helpers" / "windows_like"
OPTIONS = ["--model", "resnet8", "--data.size", "16", "--batch", "8", "--peers", "2", "--epochs", "2"]

SESSION = """
import builtins, multiprocessing, signal, sys
from coterie.cli.main import main
from coterie.methods import Method

assert builtins.windows_like and multiprocessing.get_start_method() == "spawn"
photos, out, *options = sys.argv[1:]
train = ["train", "--data", photos, *options, "--out", out]
after_step, left = Method.after_step, [3]

def interrupt(self):
    after_step(self)
    left[0] -= 1
    if not left[0]:
        signal.raise_signal(signal.SIGBREAK)

Method.after_step = interrupt
try:
    main([*train, "--data.workers", "2"])
except SystemExit as ended:
    assert ended.code == 75, ended.code
else:
    raise AssertionError("Ctrl-Break did not stop it")
main([*train, "--data.workers", "0"])
main(["evaluate", out])
main(["report", out, "--output", out + "/report.html"])
main(["export", out, "--output", out + "/student.pth"])
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for index in range(24):
        file = root / ("train" if index < 16 else "val") / "ab"[index % 2] / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(index).save(file)
    return root


def windows_like(*command: object) -> subprocess.CompletedProcess[str]:
    """Run Python without what Windows lacks; ASCII stands for its code page."""
    paths = [str(HELPER), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    ascii_default = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **ascii_default, "PYTHONPATH": os.pathsep.join(paths)},
        timeout=300,
    )


@not_on_windows
def test_every_command_works_as_on_windows(photos: Path, tmp_path: Path) -> None:
    """Workers are spawned, Ctrl-Break stops and saves; the weights are those of this system to the bit."""
    out, here = tmp_path / "out", tmp_path / "here"
    session = windows_like("-c", SESSION, photos, out, *OPTIONS)
    assert session.returncode == 0, session.stderr
    printed("train", "--data", photos, *OPTIONS, "--data.workers", 2, "--out", here)
    assert (out / "student.safetensors").read_bytes() == (here / "student.safetensors").read_bytes()
    assert (out / "student.pth").is_file() and "</html>" in (out / "report.html").read_text(encoding="utf-8")
    environment = yaml.safe_load((out / "environment.json").read_text(encoding="utf-8"))
    assert environment["memory"] is None and len(environment["continued"]) == 1
    assert not [file.name for file in out.iterdir() if file.suffix == ".part"]


def test_a_file_that_another_program_reads_is_replaced_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, original, attempts = tmp_path / "metrics.jsonl", Path.replace, []

    def in_use(self: Path, target: Path) -> Path:
        attempts.append(target)
        if len(attempts) <= 2:
            raise PermissionError(13, "Permission denied")
        return original(self, target)

    file.write_text("old")
    monkeypatch.setattr(Path, "replace", in_use)
    write(file, "new")
    assert file.read_text() == "new" and attempts == [file] * 3
    monkeypatch.setattr("coterie.files.PATIENCE", 0.05)

    def never(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", never)
    with pytest.raises(Failure, match="could not be written .Permission denied.; what was there before is intact"):
        write(file, "newer")
    assert file.read_text() == "new" and list(tmp_path.iterdir()) == [file] and PATIENCE >= 1


def test_a_directory_that_cannot_be_opened_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, original = [], os.open

    def no_directories(path: Path, flags: int) -> int:
        opened.append(path)
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied")
        return original(path, flags)

    monkeypatch.setattr(os, "open", no_directories)
    with atomic_path(tmp_path / "file") as part:
        part.write_bytes(b"content")
    assert (tmp_path / "file").read_bytes() == b"content" and opened[-1] == tmp_path


def test_the_old_file_is_kept_under_another_name(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    replace(one, two)
    assert two.read_text() == "1" and not one.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no second signal to stand for Ctrl-Break")
def test_ctrl_break_stops_where_the_system_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(signal, "SIGBREAK", signal.SIGUSR2, raising=False)
        patch.delattr(signal, "SIGUSR1")
        signals = importlib.reload(coterie.signals)
        assert signals.STOP_SIGNALS == (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
        with signals.Signals() as stop:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert stop.seen == "SIGUSR2"
    assert signal.SIGUSR1 in importlib.reload(coterie.signals).STOP_SIGNALS


@not_on_windows
def test_nothing_of_the_package_imports_what_windows_lacks() -> None:
    """All modules are imported where these modules do not exist."""
    script = (
        "import importlib, pkgutil, coterie\n"
        "for module in pkgutil.walk_packages(coterie.__path__, 'coterie.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
    )
    result = windows_like("-c", script)
    assert result.returncode == 0, result.stderr


def test_a_train_directory_on_a_path_with_spaces(photos: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(photos, tmp_path / "my photos"))
    printed("train", "--data", root, *OPTIONS, "--epochs", 1, "--data.workers", 0, "--out", tmp_path / "my run")
    assert (tmp_path / "my run" / "student.safetensors").is_file()


def test_the_workflow_runs_the_suite_on_every_system_with_pinned_actions() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    test, lint = workflow["jobs"]["test"], workflow["jobs"]["lint"]
    assert {system.partition("-")[0] for system in test["strategy"]["matrix"]["os"]} == {
        "ubuntu",
        "macos",
        "windows",
    }
    assert test["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    commands = [step["run"] for job in (test, lint) for step in job["steps"] if "run" in step]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(command.replace("pip install", "pip install --quiet") in script for command in commands)
    assert {"pytest", "ruff check .", "ruff format --check .", "mypy", "lint-imports"} <= set(commands)
    actions = [step["uses"] for job in (test, lint) for step in job["steps"] if "uses" in step]
    assert actions and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in actions)
    assert all(job["timeout-minutes"] for job in (test, lint)) and "concurrency" in workflow
