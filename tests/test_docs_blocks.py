"""Every code block of the documents is checked: Python is run, commands are parsed as the command line does it.

The commands that lead from images to a file, and those of the report, are run as well, with a small network.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.cli import main as cli
from coterie.cli.typos import check_words
from coterie.models import networks
from tests.helpers.common import printed
from tests.helpers.photographs import photographs

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(file for file in (ROOT / "docs").rglob("*.md") if file.parent.name != "gallery"),
]
"""Those of the gallery are written from scripts that tests/examples/test_gallery.py runs."""
BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```", re.DOTALL | re.MULTILINE)
RUN_BY = {
    "README.md": "tests/test_docs.py",
    "CONTRIBUTING.md": "tests/test_docs.py",
    "docs/compare.md": "tests/test_docs_blocks.py",
    "docs/deploy.md": "tests/deploy/test_deploy_script.py",
    "docs/loops.md": "tests/test_docs.py",
    "docs/own_method.md": "tests/methods/test_methods_pages.py",
    "docs/python.md": "tests/test_docs.py",
    "docs/recipes.md": "tests/test_docs.py",
    "docs/report.md": "tests/report/test_report_outputs.py",
}
"""The test that runs the Python of a page."""
NOT_COMMANDS = {"pip", "pytest", "cd", "ray", "python", "mkdocs"}
"""Programs of others that begin a line; of SLURM's script only the call of Coterie is ours."""


def commands() -> list[tuple[str, list[str]]]:
    """Return each call of `coterie` in the documents, with its document."""
    calls: list[tuple[str, list[str]]] = []
    for file in sorted(DOCUMENTS):
        for block in BLOCK.finditer(file.read_text(encoding="utf-8")):
            if block["language"] not in ("sh", ""):
                continue
            for line in block["text"].replace("\\\n", " ").splitlines():
                call = re.search(r"(?:^|&& |-m |RAY_ADDRESS=\S+ )coterie (?P<words>.*)", line.strip())
                if call:
                    words = shlex.split(call["words"], comments=True)
                    calls.append((file.relative_to(ROOT).as_posix(), words))
                elif block["language"] == "sh" and not line.startswith((" ", "#")) and line.strip():
                    known = line.split()[0] in NOT_COMMANDS or "SLURM" in block["text"]
                    assert known, f"{file.name}: {line}"
    return calls


def test_python_in_the_documents_is_run() -> None:
    pages = {
        file.relative_to(ROOT).as_posix()
        for file in DOCUMENTS
        if any(block["language"] == "python" for block in BLOCK.finditer(file.read_text(encoding="utf-8")))
    }
    assert pages == set(RUN_BY)
    for page, test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not read {page}"


CALLS = commands()


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda n: f"{CALLS[n][0]} {CALLS[n][1][0]} {n}")
def test_a_command_in_a_document_is_accepted(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "cats").mkdir(parents=True)  # a path that the examples name
    name, *rest = CALLS[number][1]
    if name == "data":
        assert rest[0] in ("cifar10", "cifar100", "fashion_mnist", "inspect")
        return
    check_words(name, Path(cli.COMMANDS[name].__code__.co_filename), rest)
    if name != "train" or "my_package.MyMethod" in rest:  # which another test trains
        return
    earlier = {flag for _, (other, *flags) in CALLS[:number] if other == "train" for flag in flags}
    if not [word for word in rest if word.startswith("--") and word not in earlier]:
        return  # a full parse takes a second or more, and these options were parsed before
    if "--method.teacher" in rest:
        rest[rest.index("--method.teacher") + 1] = "teacher.safetensors"
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
        cli.main([name, *rest, "--print_config"])
    assert not ended.value.code and "method:" in printed.getvalue()


def test_the_comparison_from_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    (code,) = (block["text"] for block in BLOCK.finditer(text) if block["language"] == "python")
    # A function that no file can name is trained in this process, which saves the start of others.
    quicker = {
        "seeds=3, epochs=30": "seeds=1, epochs=1, batch=600",
        '"resnet8"': "lambda num_classes, in_channels: resnet8(num_classes, in_channels)",
    }
    for shown, replacement in quicker.items():
        assert shown in code
        code = code.replace(shown, replacement)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"coterie": coterie, "resnet8": networks()["resnet8"]}
    exec(code, names)
    assert (tmp_path / "student.onnx").is_file() and names["result"].verdict


QUICKLY = ["--epochs", "2", "--batch", "20", "--data.size", "16", "--data.workers", "0"]


def type_commands(page: str, first: str) -> str:
    """Run the commands of the block that begins with a line, on photographs; return what they print."""
    shown = []
    (text,) = (
        block["text"]
        for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
        if block["text"].startswith(first)
    )
    for line in text.splitlines():
        _, name, *words = shlex.split(line.replace("cifar100 --data.root data", "photos"), comments=True)
        if "--watch" in words:  # goes on until it is interrupted
            continue
        small = {"resnet18": "resnet8", "resnet32": "resnet8", "DIR...": "DIR"}
        words = [small.get(word, word) for word in words]
        shown.append(printed(name, *words, *(QUICKLY if name == "train" else []))[0])
    return "".join(shown)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photographs(tmp_path / "all", train=20, val=0) / "train").rename(tmp_path / "photos")
    (tmp_path / "photos" / "china").rename(tmp_path / "photos" / "cats")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", ["index", "deploy"])
def test_the_commands_from_images_to_a_prediction_run(page: str, photos: None) -> None:
    text = type_commands(f"docs/{page}.md", "coterie train ")
    assert Path("student.onnx").is_file() and "labels agree on 100.00 %" in text
    assert text.count(".jpg") >= 10 and " %" in text.splitlines()[-1]


def test_the_commands_of_the_report_run(photos: None) -> None:
    printed("train", "--method", "PCL", "--model", "resnet8", "--data", "photos", *QUICKLY, "--out", "DIR")
    text = type_commands("docs/report.md", "coterie report ")
    assert "PCL" in text and r"\begin{tabular}" in text
    assert {"report.html", "x.svg", "curves.csv"} <= {file.name for file in Path.cwd().iterdir()}
