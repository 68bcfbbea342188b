"""Train with an older commit and with this one, in one run, and compare the students' weights bit by bit.

    python benchmarks/same_numbers.py BASE_COMMIT [METHOD...]

Every method trains for two epochs on a few digits with both versions, one thread each, in processes of their own;
then PCL with --ema on a folder of images read by workers, with --accumulate, with two processes (torchrun), and
killed and continued. The exit code is 1 if a bit differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

METHODS = ("Baseline", "KD", "DML", "CL", "ONE", "FFL", "OKDDip", "KDCL", "PCL", "MCL")
DIGITS = "--data digits --model resnet8 --data.limit 20 --batch 50 --epochs 2 --device cpu"
FOLDER = "--data folder --model resnet8 --batch 8 --epochs 2 --device cpu --data.workers 2 --data.size 32"


def trainings(folder: Path) -> dict[str, list[str]]:
    """Name the trainings that are compared, with their options."""
    named = {method: ["--method", method, *DIGITS.split()] for method in METHODS}
    named["KD"] += ["--method.teacher", "Baseline"]
    named["Baseline --ema"] = ["--method", "Baseline", "--ema", *DIGITS.split()]
    named["KDCL --accumulate 2"] = ["--method", "KDCL", "--accumulate", "2", *DIGITS.split()]
    named["PCL, folder with workers"] = ["--method", "PCL", *FOLDER.split(), "--data.root", str(folder)]
    named["PCL, two processes"] = ["--method", "PCL", *DIGITS.split()]
    named["PCL, killed and continued"] = ["--method", "PCL", *DIGITS.split()]
    return named


def make_folder(folder: Path) -> None:
    """Write a small image folder: two classes, pictures of random colours."""
    random = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 4)):
        for name in ("a", "b"):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((40, 36)).save(folder / split / name / f"{i}.png")


def train(source: Path, name: str, options: list[str], directory: Path) -> dict[str, np.ndarray]:
    """Train with the package below `source` and return the student's weights."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    module = ["-m", "coterie", "train", *options, "--out", name]
    if name == "PCL, two processes":
        module = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *module]
    command = [sys.executable, *module]
    if name == "PCL, killed and continued":
        # 4 steps an epoch: stopped inside the second one.
        stop = (
            "import os, sys\n"
            "try:\n"
            " from coterie.cli.main import main\n"
            " from coterie.training.progress import ProgressReporter as kind\n"
            "except ImportError: from coterie.cli import main; from coterie.progress import Show as kind\n"
            "step = kind.step\n"
            "def stopping(self, *a):\n    step(self, *a)\n    if self.done == 6: os.kill(os.getpid(), 15)\n"
            "kind.step = stopping; main(sys.argv[1:])"
        )
        stopped = subprocess.run([sys.executable, "-c", stop, *module[2:]], cwd=directory, env=environment)
        if stopped.returncode != 75:
            sys.exit(f"{name} was to be stopped by a signal, but ended with {stopped.returncode}")
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
    weights: dict[str, np.ndarray] = load_file(directory / name / "student.safetensors")
    return weights


def main(base: str, only: list[str]) -> int:
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        old = scratch / "old"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(old), base], cwd=here, check=True)
        try:
            make_folder(scratch / "folder")
            different = 0
            for name, options in trainings(scratch / "folder").items():
                if only and name not in only and not (name == "Baseline" and "KD" in only):
                    continue
                sides = []
                for version, source in (("before", old / "src"), ("after", here / "src")):
                    directory = scratch / version
                    directory.mkdir(exist_ok=True)
                    sides.append(train(source, name, options, directory))
                before, after = sides
                equal = before.keys() == after.keys() and all(
                    before[key].tobytes() == after[key].tobytes() for key in before
                )
                different += not equal
                count = sum(array.size for array in after.values())
                print(f"{name}: {'equal' if equal else 'DIFFERENT'} ({count:,} weights)", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=here, check=True)
    return different


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(1 if main(sys.argv[1], sys.argv[2:]) else 0)
