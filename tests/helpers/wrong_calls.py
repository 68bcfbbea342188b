"""Files that wrong calls of the command line name, and one such call in this process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from .common import picture, printed

SMALL = ["--model", "resnet8", "--data", "digits", "--data.limit", 5, "--batch", 10, "--epochs", 1]
PLACEHOLDERS = {"{null}": "\0", "{long}": "x" * 300, "{latin1}": "caf\udce9", "{newline}": "a\nb", "{small}": ""}
PLACEHOLDERS["{small}"] = shlex.join(map(str, SMALL))
OWN_CODE = """
import torch
from torch import nn
from torch.utils.data import Dataset

from coterie.methods.baseline import Baseline

NUMBER = 5


def untyped(net, factor):
    return Baseline(net)


def no_module(num_classes, in_channels):
    return 5


def raising(num_classes, in_channels):
    raise KeyError("weights")


class Free:
    pass


class Wide(nn.Module):
    def __init__(self, num_classes=10, in_channels=1):
        super().__init__()
        self.layer = nn.Linear(7, num_classes)

    def forward(self, x):
        return self.layer(x.flatten(1))
"""


@dataclass
class Ending:
    """How a call ended: its exit code, its standard error and output, and the traceback of what it let through."""

    code: object
    errors: str
    trace: str = ""
    output: str = ""


def make_files(root: Path) -> None:
    """Write a finished run, exports of it, photographs, tables, options and files that are none of these."""
    printed("train", *SMALL, "--method", "Baseline", "--out", root / "run")
    printed("export", root / "run", "-o", root / "student.safetensors")
    printed("export", root / "run", "-o", root / "student.onnx")
    for folder in ("train/a", "train/b", "val/a", "val/b"):
        (root / "photos" / folder).mkdir(parents=True)
        for number in range(4):
            picture(number, (16, 16)).save(root / "photos" / folder / f"{number}.png")
    Image.Image.save(picture(0, (8, 8)).convert("L"), root / "photo.png")
    (root / "own_wrong_calls.py").write_text(OWN_CODE)
    (root / "broken_code.py").write_text("def make(:\n")
    (root / "failing_code.py").write_text("raise RuntimeError('no licence')\n")
    (root / "garbage.bin").write_bytes(bytes(range(256)) * 8)
    for name in ("onnx", "safetensors", "pt2", "pth", "png", "csv", "parquet", "yaml", "json"):
        (root / f"garbage.{name}").write_bytes(bytes(range(256)) * 8)
        (root / f"empty.{name}").touch()
    for name in (
        "folder.onnx",
        "folder.yaml",
        "folder.png",
        "folder.csv",
        "nothing",
        "no_images/a",
        "one_class/a",
    ):
        (root / name).mkdir(parents=True)
    picture(0, (16, 16)).save(root / "one_class" / "a" / "0.png")
    (root / "no_images" / "a" / "letter.txt").write_text("no image")
    texts = {
        "list.yaml": "- 1\n- 2\n",
        "word.yaml": "epochs\n",
        "unknown.yaml": "epoch: 3\n",
        "types.yaml": "epochs: [1, 2]\n",
        "nested.yaml": "optimizer: {class_path: SGD, init_args: {lr: fast}}\n",
        "method.yaml": "method: {class_path: PCL, init_args: {temprature: 3}}\n",
        "broken.yaml": "epochs: [1\n",
        "tags.yaml": "epochs: !!python/object/apply:os.system ['true']\n",
        "twice.yaml": "config: twice.yaml\n",
        "no_columns.csv": "1,2\n3,4\n",
        "no_rows.csv": "image,label\n",
        "lost.csv": "image,label\nlost.png,a\nlost2.png,b\n",
        "weights.txt": "1 2 x\n",
        "names.txt": "photo.png\n",
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    _damaged_runs(root)
    _odd_runs(root)


def _damaged_runs(root: Path) -> None:
    """Copy the run with one file of it replaced by garbage, each."""
    files = [file for file in (root / "run").iterdir() if file.is_file()]
    damages = {
        "garbage_data": ("data.json", b"\xff\xfe garbage"),
        "garbage_environment": ("environment.json", b"\xff\xfe garbage"),
        "list_environment": ("environment.json", b"[]"),
        "garbage_metrics": ("metrics.jsonl", b"\xff\xfe garbage"),
        "garbage_config": ("config.yaml", b"\xff\xfe garbage"),
        "garbage_student": ("student.safetensors", b"\xff\xfe garbage"),
        "garbage_checkpoint": ("checkpoint.pt", b"\xff\xfe garbage"),
        "garbage_resolved": ("resolved.json", b"\xff\xfe garbage"),
    }
    for folder, (name, content) in damages.items():
        (root / folder).mkdir()
        for file in files:
            (root / folder / file.name).write_bytes(content if file.name == name else file.read_bytes())
        (root / folder / "checkpoint.previous.pt").unlink(missing_ok=True)


def _odd_runs(root: Path) -> None:
    """Copy the run with one value of it replaced by what no training writes, each."""
    for name, path in (("data", "coterie.data.digits.digits"), ("method", "coterie.Baseline")):
        shutil.copytree(root / "run", root / f"odd_{name}")
        config = root / f"odd_{name}" / "config.yaml"
        config.write_text(config.read_text().replace(f"{path}\n", f"{path}\n  dict_kwargs: {{x: 1}}\n"))
    shutil.copytree(root / "run", root / "odd_split")
    file = root / "odd_split" / "metrics.jsonl"
    record = {name: v for name, v in json.loads(file.read_text()).items() if name not in ("run", "digest")}
    file.write_text(json.dumps({**record, "split": "photos"}) + "\n")


def words_of(line: str) -> list[str]:
    """Return the arguments of a line of the table, with the placeholders replaced."""
    words = []
    for word in shlex.split(line.replace("{small}", PLACEHOLDERS["{small}"])):
        for placeholder, text in PLACEHOLDERS.items():
            word = word.replace(placeholder, text)
        words.append(word)
    return words


def call(words: list[str], stdin: bytes = b"") -> Ending:
    """Run a command in this process, as the command line does; keep what it lets through."""
    from coterie.cli.main import main

    out, err, before, path = io.StringIO(), io.StringIO(), os.environ.copy(), list(sys.path)
    standard_input = sys.stdin
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
        return Ending(0, err.getvalue(), output=out.getvalue())
    except SystemExit as ended:
        return Ending(ended.code, err.getvalue())
    except BaseException:
        return Ending(None, err.getvalue(), traceback.format_exc())
    finally:
        sys.stdin, sys.path[:] = standard_input, path
        os.environ.clear()
        os.environ.update(before)


def listing(root: Path) -> dict[str, str]:
    """Return a digest of every file below a folder by its path; folders have an empty one."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(root.rglob("*"))
        if "__pycache__" not in path.parts
    }
