"""Run the scripts of examples/gallery and write docs/gallery: each script with its output and picture.

    python docs/build_gallery.py              # all of them, some minutes on two cores
    python docs/build_gallery.py 1_digits     # this one

Each script runs in an empty directory, in a process of its own with one thread. The page of a script that fails
stays as it was. Needs: pip install -c constraints.txt -e ".[examples,export]"
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS, PAGES = ROOT / "examples" / "gallery", ROOT / "docs" / "gallery"
NOTE = "<!-- Written by docs/build_gallery.py: change the script instead. -->"
PICTURES = {
    "1_digits": "Errors over epochs of the network alone and with peers, with bands over the seeds",
    "2_photos_to_onnx": "Test pictures, each with the predicted class and its probability; mistakes in red",
    "3_cutmix_with_peers": "Six digits and three mixed views of each; the pasted box, tinted, is in one place",
    "4_own_method": "Errors over epochs of Baseline, KDCL and the method of the script, with bands over the seeds",
    "5_lightning": "The four loss terms of PCL over the steps: distillation rises in steps as cross-entropy falls",
    "6_reading_a_study": "Six differences between rows of the study, each with its interval and the single seeds",
}
"""What each picture shows, for those who cannot see it; the scripts in the order of the gallery."""


class ScriptFailed(Exception):
    """A script did not end well, or wrote no picture."""


@dataclass(frozen=True)
class ScriptRun:
    """What a script printed, its picture, and what it cost."""

    output: str
    picture: Path
    cpu_seconds: float


def run_script(script: Path, directory: Path) -> ScriptRun:
    """Run a script in a directory as a user does, with one thread."""
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # where coterie is
    settings = {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    settings["PYTHONUNBUFFERED"] = "1"  # what the script and its commands print stays in order
    environment = {**os.environ, "PATH": commands, **settings}
    before = os.times()
    result = subprocess.run(
        [sys.executable, str(script)], cwd=directory, env=environment, capture_output=True, encoding="utf-8"
    )
    after = os.times()
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        raise ScriptFailed(f"{script.name}: {lines[-1]}")
    pictures = [*directory.glob("*.svg"), *directory.glob("*.png")]
    if len(pictures) != 1:
        raise ScriptFailed(f"{script.name}: it should write one picture, not {len(pictures)}.")
    seconds = after.children_user - before.children_user + after.children_system - before.children_system
    return ScriptRun(result.stdout, pictures[0], seconds)


def docstring(script: Path) -> tuple[str, str]:
    """Return what a script does and what one learns by it."""
    words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    task, _, lesson = words.partition("\n\n")
    return task, lesson


def title(script: Path) -> str:
    return docstring(script)[0].partition(":")[0]


def helpers(script: Path) -> list[Path]:
    """Return the files beside a script that it imports."""
    code = script.read_text(encoding="utf-8")
    return [file for file in sorted(SCRIPTS.glob("[a-z]*.py")) if f"from {file.stem} import " in code]


def code_block(file: Path) -> str:
    return f"```python\n{file.read_text(encoding='utf-8')}```"


def page(script: Path, output: str, picture: str, origin: str) -> str:
    """Return the page of a script."""
    source = f"examples/gallery/{script.name}"
    parts = [
        f"# {title(script)}",
        NOTE,
        docstring(script)[1],
        f"```sh\npython {source}\n```",
        f"![{PICTURES[script.stem]}]({picture})",
        "It prints:",
        f"```text\n{output}```",
        origin,
        f"## The script: [{script.name}](../../{source})",
        code_block(script),
    ]
    for file in helpers(script):
        parts += [f"It imports [{file.name}](../../examples/gallery/{file.name}):", code_block(file)]
    return "\n\n".join([*parts, "[All scripts of the gallery](index.md)"]) + "\n"


def index(scripts: list[Path], pictures: dict[str, str]) -> str:
    """Return the page that shows all scripts, two in a row."""
    cells = []
    for script in scripts:
        name, (task, _) = script.stem, docstring(script)
        words = task.partition(": ")[2].replace("\n", " ")
        cells.append(
            f"[![{PICTURES[name]}]({pictures[name]})]({name}.md)<br>[{title(script)}]({name}.md): {words}"
        )
    rows = "".join(f"| {a} | {b} |\n" for a, b in zip(cells[::2], cells[1::2], strict=True))
    words = "Six short scripts with their output and pictures. Each takes less than two minutes on two cores and\n"
    words += "downloads nothing. `python docs/build_gallery.py` runs all scripts and writes these pages."
    return f"# Gallery\n\n{NOTE}\n\n{words}\n\n| | |\n|---|---|\n{rows}"


def origin_of(seconds: float, environment: dict[str, object]) -> str:
    """Say when, from what and where a script was run, and what it cost."""
    commit = str(environment["commit"] or "unknown")
    digits, dirty = commit[:7], "-dirty" if commit.endswith("-dirty") else ""
    versions = f"Python {environment['python']}, torch {environment['torch']}"
    return (
        f"Run {str(environment['date'])[:10]}, commit {digits}{dirty}, {environment['processor']}, one thread, "
        f"{versions}: {seconds:.0f} seconds of CPU time."
    )


def stored_pictures() -> dict[str, str]:
    return {file.stem: file.name for file in PAGES.iterdir() if file.suffix in (".svg", ".png")}


def main(names: list[str]) -> int:
    """Build the pages of these scripts, or of all; return how many failed."""
    from coterie.runs.environment import environment

    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        sys.exit(f"No script {', '.join(unknown)}: there are {', '.join(PICTURES)}.")
    origin, failures = environment(seed=0), 0  # before the first page changes a file
    PAGES.mkdir(exist_ok=True)
    for name in names or PICTURES:
        script, start = SCRIPTS / f"{name}.py", time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            try:
                result = run_script(script, Path(directory))
            except ScriptFailed as failure:
                failures += 1
                print(f"{failure} Its page stays as it was.", file=sys.stderr)
                continue
            for ending in (".svg", ".png"):
                (PAGES / f"{name}{ending}").unlink(missing_ok=True)
            picture = shutil.copyfile(result.picture, PAGES / f"{name}{result.picture.suffix}")
        text = page(script, result.output, picture.name, origin_of(result.cpu_seconds, origin))
        (PAGES / f"{name}.md").write_text(text, encoding="utf-8")
        print(f"{name}: {result.cpu_seconds:.0f} s of CPU time, {time.monotonic() - start:.0f} s by the clock")
    pictures = stored_pictures()
    scripts = [SCRIPTS / f"{name}.py" for name in PICTURES]
    if len(pictures) == len(scripts):
        (PAGES / "index.md").write_text(index(scripts, pictures), encoding="utf-8")
    return failures


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
