"""The gallery: its pages hold the scripts as they stand, and the scripts print what the pages show."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from tests.helpers.common import script

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "results" / "study" / "cifar"
RECORDS = any(STUDY.glob("*/metrics.jsonl"))  # an sdist has the figures alone
NO_RECORDS = "an sdist does not hold the records of results/"
gallery: ModuleType = script("build_gallery", "docs")
NAMES = list(gallery.PICTURES)
SCRIPTS = [gallery.SCRIPTS / f"{name}.py" for name in NAMES]
LONG = ("1_digits", "2_photos_to_onnx", "3_cutmix_with_peers", "4_own_method")
"""Those that train for longer than the daily run may; `pytest -m slow` runs them."""


def read_page(name: str) -> str:
    return (gallery.PAGES / f"{name}.md").read_text(encoding="utf-8")


def output_on(page: str) -> str:
    """Return what the page says the script prints."""
    (output,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    return output


def without_numbers(output: str) -> str:
    return re.sub(r"[+-]?\d[\d.,]*", "#", output)


def test_there_is_a_page_and_one_picture_for_each_script() -> None:
    assert [file.stem for file in sorted(gallery.SCRIPTS.glob("[0-9]*.py"))] == NAMES
    pictures = {file.name for name in NAMES for file in gallery.PAGES.glob(f"{name}.[sp][vn]g")}
    assert len(pictures) == len(NAMES)
    assert {file.name for file in gallery.PAGES.iterdir()} == {"index.md", *(f"{n}.md" for n in NAMES), *pictures}
    for file in SCRIPTS:
        task, lesson = gallery.docstring(file)
        assert ":" in task and lesson.startswith("You learn")
        assert 8 <= len([line for line in file.read_text(encoding="utf-8").splitlines() if line]) <= 60
    code = SCRIPTS[0].read_text(encoding="utf-8").split('"""')[2]
    assert len([line for line in code.splitlines() if line]) == 8  # "Digits in eight lines"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_holds_its_script_as_it_stands(name: str) -> None:
    page = read_page(name)
    (origin,) = re.findall(r"^Run .*$", page, re.MULTILINE)
    assert re.fullmatch(
        r"Run [\d-]{10}, commit \w{7}, .+, one thread, Python .+: \d+ seconds of CPU time\.", origin
    )
    assert float(origin.rpartition(": ")[2].split()[0]) < 120
    picture = gallery.stored_pictures()[name]
    expected = gallery.page(gallery.SCRIPTS / f"{name}.py", output_on(page), picture, origin)
    assert page == expected, f"run `python docs/build_gallery.py {name}`"


def test_the_first_page_links_all() -> None:
    index = (gallery.PAGES / "index.md").read_text(encoding="utf-8")
    assert index == gallery.index(SCRIPTS, gallery.stored_pictures())
    for target in re.findall(r"\]\(([^)]+)\)", index):
        assert (gallery.PAGES / target).is_file()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in NAMES])
def test_a_script_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    if name == "5_lightning" and importlib.util.find_spec("lightning") is None:
        pytest.skip("needs Lightning, which the extra `examples` installs")
    if name == "6_reading_a_study" and not RECORDS:
        pytest.skip(NO_RECORDS)
    result = gallery.run_script(gallery.SCRIPTS / f"{name}.py", tmp_path)
    shown, printed = output_on(read_page(name)), result.output
    if name == "4_own_method":  # the words of the verdict depend on the numbers
        shown, printed = ("\n".join(text.splitlines()[:3]) for text in (shown, printed))
    assert without_numbers(printed) == without_numbers(shown)
    errors = [float(value) for value in re.findall(r"([\d.]+)(?: ± [\d.]+)? % errors", printed)]
    assert all(error < 40 for error in errors)  # chance is 83 or 90
    if name == "2_photos_to_onnx":
        assert errors[0] == errors[1]  # of torch and of ONNX Runtime
    stored = gallery.PAGES / gallery.stored_pictures()[name]
    assert result.picture.suffix == stored.suffix
    if stored.suffix == ".png":
        with Image.open(result.picture) as fresh, Image.open(stored) as before:
            assert fresh.width == before.width
    else:
        texts = (re.findall(r"<text[^>]*>([^<]*)</text>", f.read_text("utf-8")) for f in (result.picture, stored))
        fresh_texts, stored_texts = ([t for t in of_one if not re.search(r"\d", t)] for of_one in texts)
        assert fresh_texts == stored_texts


def study_errors(recipe: str) -> dict[str, float]:
    """Read the last error of the deployed network from the text files of a study's runs, by seed."""
    errors = {}
    for run in STUDY.glob(f"{recipe}-s*"):
        last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        errors[run.name.rpartition("-s")[2]] = last["predictors"][last["deployed"]]["error"]
    return errors


@pytest.mark.skipif(not RECORDS, reason=NO_RECORDS)
def test_the_page_on_the_study_has_its_numbers() -> None:
    """The stored numbers, by another program: all signs tried one by one, over the seeds the page counts."""
    pcl, alone = (
        study_errors(name) for name in ("PCL-resnet8-cifar10-740f90b4", "Baseline-resnet8-cifar10-fe38681c")
    )
    line = re.search(
        r"PCL +- alone  .* points, (\d+) seeds, p = ([\d.]+)", output_on(read_page("6_reading_a_study"))
    )
    assert line is not None
    seeds = sorted(pcl.keys() & alone.keys())[: int(line[1])]  # the study may have gone on since
    differences = [pcl[seed] - alone[seed] for seed in seeds]
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(seeds))
    ]
    p = sum(value >= abs(sum(differences)) - 1e-9 for value in sums) / len(sums)
    assert f"{sum(differences) / len(seeds):+.2f} ± " in line[0] and line[2] == f"{p:.4f}"


def test_without_lightning_the_script_says_what_it_needs() -> None:
    file = gallery.SCRIPTS / "5_lightning.py"
    code = (
        f"import runpy, sys; sys.modules['lightning'] = None; runpy.run_path({str(file)!r}, run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == 'This script needs Lightning: pip install -c constraints.txt -e ".[examples]"\n'


WELL = '''"""Well: draws.

You learn nothing.
"""
import subprocess, sys
from pathlib import Path
print("first", flush=False)
subprocess.run([sys.executable, "-c", "print('second')"], check=True)
print("third")
Path("x.svg").write_text("<svg/>")
'''


def test_a_script_that_fails_leaves_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scripts, pages = tmp_path / "scripts", tmp_path / "pages"
    scripts.mkdir()
    (scripts / "1_well.py").write_text(WELL)
    (scripts / "2_well.py").write_text(WELL)
    for name, value in {"SCRIPTS": scripts, "PAGES": pages, "PICTURES": {"1_well": "a", "2_well": "b"}}.items():
        monkeypatch.setattr(gallery, name, value)
    assert gallery.main([]) == 0
    before = (pages / "1_well.md").read_text()
    assert output_on(before) == "first\nsecond\nthird\n"  # in this order, though they are of two processes
    assert "(1_well.svg)" in (pages / "index.md").read_text()
    capfd.readouterr()
    (scripts / "1_well.py").write_text("raise SystemExit('It needs a thing.')")
    (scripts / "2_well.py").write_text(WELL.replace("third", "fourth").replace("x.svg", "x.png"))
    assert gallery.main([]) == 1
    assert "1_well.py: It needs a thing. Its page stays as it was.\n" in capfd.readouterr().err
    assert (pages / "1_well.md").read_text() == before and (pages / "1_well.svg").is_file()
    assert "fourth" in (pages / "2_well.md").read_text() and not (pages / "2_well.svg").exists()
    with pytest.raises(SystemExit, match="No script 3_well: there are 1_well, 2_well"):
        gallery.main(["3_well"])
