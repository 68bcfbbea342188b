"""Files in the working directory are not taken for installed packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from coterie.trust import names_code_here
from tests.helpers.common import printed

MODULES = ["__future__", "typing", "re", "json", "numpy", "torch", "torchvision", "timm", "yaml", "csv", "scipy"]
MODULES += ["onnxruntime", "onnx", "jsonargparse", "rich", "safetensors", "sklearn", "jinja2"]
# Packages that libraries look for and can do without.
MODULES += ["cuda", "pynvml", "opt_einsum", "org", "pydot", "monkeytype", "typeshed_client", "pydantic"]


@pytest.fixture
def hostile(tmp_path: Path, shipped: Path, pcl_run: Path) -> Path:
    """A folder of photographs with a run and an export, and modules that write their name to `ran`."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        )
    (folder / "PIL").mkdir()
    shutil.copy(folder / "json.py", folder / "PIL" / "__init__.py")
    Image.new("L", (8, 8)).save(folder / "a.png")
    shutil.copy(shipped / "student.onnx", folder)
    shutil.copytree(pcl_run, folder / "run")
    return folder


COMMANDS = {
    "predict": ["predict", "student.onnx", "a.png"],
    "evaluate": ["evaluate", "run"],
    "export": ["export", "run", "-o", "x.safetensors"],
    "report": ["report", "run"],
    "data": ["data", "inspect", "digits", "--limit", "3"],
    "models": ["models"],
    "methods": ["methods"],
    "cuts": ["cuts", "resnet8"],
    "train": ["train", "--model=resnet8", "--data.limit=4", "--epochs=1", "--batch=32", "--out=new"],
    "compare": [
        "compare",
        "--model=resnet8",
        "--data.limit=4",
        "--epochs=1",
        "--batch=32",
        "--out=other",
        "--dry-run",
    ],
    "reproduce": ["reproduce", "table1", "--protocol=smoke", "--show"],
}


def test_by_both_ways_to_call_it(hostile: Path) -> None:
    script = "import sys; from coterie.cli.main import main; sys.exit(main())"  # as pip's console script has it
    (hostile.parent / "bin").mkdir()
    (hostile.parent / "bin" / "coterie").write_text(script)
    for start in (["-m", "coterie"], [str(hostile.parent / "bin" / "coterie")]):
        ended = subprocess.run(
            [sys.executable, *start, *COMMANDS["predict"]],
            cwd=hostile,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0 and not (hostile / "ran").exists(), (hostile / "ran", ended.stderr)


def test_every_command(hostile: Path) -> None:
    """In one process, for importing torch again and again takes long: what is imported late is imported there."""
    script = "import sys; from coterie.cli.main import main\nfor c in map(str.split, sys.stdin): main(c)"
    commands = "\n".join(" ".join(command) for command in COMMANDS.values())
    ended = subprocess.run(
        [sys.executable, "-P", "-c", script],
        input=commands,
        cwd=hostile,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


@pytest.mark.slow
def test_runs_that_a_command_starts(hostile: Path) -> None:
    """The processes of `compare` begin in the folder, where coterie.py must not be taken for the package."""
    shutil.copy(hostile / "json.py", hostile / "coterie.py")
    arguments = ["--model=resnet8", "--data.limit=4", "--epochs=1", "--batch=32", "--out=new", "--seeds=1"]
    script = "import sys; from coterie.cli.main import main; main(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", script, "compare", "--methods=Baseline,DML", *arguments],
        cwd=hostile,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


def test_code_of_ones_own_is_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    (tmp_path / "my_method.py").write_text("import coterie\nclass Mine(coterie.Baseline): ...\n")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "net.py").write_text("from coterie.models.resnet import resnet8 as make\n")
    options = [
        "--model=my_package.net:make",
        "--method=my_method.Mine",
        "--data.limit=4",
        "--epochs=1",
        "--batch=32",
    ]
    printed("train", *options, "--out=run")
    for module in ("my_method", "my_package.net", "my_package"):
        del sys.modules[module]
    sys.path.remove(str(tmp_path))
    printed("export", "run", "-o", "x.safetensors")
    assert sys.path[-1] == str(tmp_path)


def test_the_working_directory_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched only where a command names code in it: in a word, or in a file of options."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    before = list(sys.path)
    printed("models")
    printed("data", "inspect", "digits", "--limit", "3")
    assert sys.path == before
    (tmp_path / "my_method.py").write_text("import coterie\nclass Mine(coterie.Baseline): ...\n")
    (tmp_path / "photos").mkdir()
    method = "{class_path: my_method.Mine}"
    for name in ("options.yaml", "options"):
        (tmp_path / name).write_text(f"method: {method}\n")
    for words in (["my_method.Mine"], ["--method=my_method.Mine"], ["DML,my_method.Mine"], ["--method", method]):
        assert names_code_here(words)
    for words in (["--config", "options"], ["--config=options.yaml"], ["x", "--config", "options.yaml"]):
        assert names_code_here(words)
    for words in (
        ["photos"],
        ["photos.old/a"],
        ["torch.optim.SGD"],
        ["my_method"],
        ["x.onnx"],
        ["--config", "none"],
    ):
        assert not names_code_here(words)
    printed("methods", "my_method.Mine")
    assert sys.path == [*before, str(tmp_path)]
