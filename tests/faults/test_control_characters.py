"""Names of classes, files and runs that would command a terminal, break a table or forge a page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import coterie
from coterie.cli.main import main
from coterie.errors import note, printable, warn
from coterie.report.table import Table, print_table, text, to_csv, to_html, to_latex, to_markdown
from tests.helpers.common import build_once, picture, printed, refused

TITLE = "\x1b]0;owned\x07\x1b[2J"
CLASSES = [
    f"a{TITLE}",
    "b\rc",
    "line\nbreak",
    "\u202egpj.exe",
    "[red]bold[/] [link=http://x]",
    "<script>alert(1)<b>",
]
FILE = f"picture{TITLE}\r\u2067.png"
RUN = f"run{TITLE}[bold]"
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(*texts: str) -> str:
    """Return texts together, once it is clear that they hold no control character but line feeds."""
    for content in texts:
        assert not (match := CONTROLS.search(content)), repr(
            content[max(0, match.start() - 60) : match.end() + 60]
        )
    return "".join(texts)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder set with such classes, a run of that name, and a picture."""

    def build(folder: Path) -> None:
        for number, name in enumerate(name.replace("/", "\u2215") for name in CLASSES):
            for split in ("train", "test"):
                (folder / "set" / split / name).mkdir(parents=True)
                for i in range(5):
                    picture(10 * number + i, (9, 9)).save(folder / "set" / split / name / f"{i}.png")
        picture(1, (9, 9)).save(folder / FILE)
        (folder / f"broken{FILE}").write_bytes(b"no picture")
        options = ["--method=DML", "--peers=2", "--model=resnet8", "--epochs=1", "--batch=16"]
        data = ["--data", folder / "set", "--data.size=8"]
        clean(*printed("train", *options, *data, "--out", folder / RUN))

    return build_once(tmp_path_factory, "control_characters", build)


@pytest.fixture
def here(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return hostile


def test_data(here: Path) -> None:
    shown = clean(*printed("data", "inspect", here / "set", "--size=8", "--sheet", "sheet\x1b[2J.png"))
    assert "a\\x1b]0;owned\\x07\\x1b[2J" in shown and "[red]bold[" in shown and "sheet\\x1b[2J.png" in shown


def test_evaluate(here: Path) -> None:
    shown = clean(*printed("evaluate", here / RUN, "--calibrate"))
    assert "[red]bold[" in shown and "\\u202egpj.exe" in shown and "b\\rc" in shown


@pytest.mark.parametrize("form", ["onnx", "safetensors"])
def test_export_and_predict(here: Path, form: str) -> None:
    file = f"student{TITLE}.{form}"
    clean(*printed("export", here / RUN, "-o", file))
    card = clean(Path(f"{file}.md").read_text())
    assert "<script>" not in re.sub(r"`[^`\n]*`", "", card)  # in code, Markdown shows it as it is
    pictures = [here / FILE, here / f"broken{FILE}", here / "set" / "test"]
    for more in ([], ["--csv"], ["--json"]):
        shown = clean(*printed("predict", file, *pictures, *more))
        assert "\\x1b]0;owned" in shown or "\\u001b]0;owned" in shown
    clean(refused("predict", f"no{file}", here / FILE))


def test_report(here: Path) -> None:
    clean(*printed("report", here / RUN, "-o", f"page{TITLE}.html"))
    page = clean(Path(f"page{TITLE}.html").read_text())
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    clean(*printed("report", here / RUN, "--text"))
    for form in ("markdown", "csv", "latex"):
        clean(*printed("report", here / RUN, "--format", form))
    clean(refused("report", here / f"no{RUN}"))
    run = coterie.load(here / RUN)
    clean(repr(run), run._repr_html_())


def test_a_damaged_run(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / f"copy{RUN}"
    shutil.copytree(here / RUN, run)
    (run / "checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(SystemExit):
        main(["evaluate", str(run)])
    assert "checkpoint.pt is damaged" in clean(*capsys.readouterr())
    (run / "metrics.jsonl").write_text("")
    clean(*printed("report", run, "--text"))


def test_names_in_metadata_files(here: Path, tmp_path: Path) -> None:
    """The names that a report reads from a run's own files, which a stranger wrote."""
    import json

    import yaml

    run = shutil.copytree(here / RUN, tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config |= {"model": f"net{TITLE}", "method": {"class_path": f"x.M{TITLE}", "init_args": {f"o{TITLE}": TITLE}}}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    environment = json.loads((run / "environment.json").read_text())
    strings = {name: f"{value}{TITLE}" for name, value in environment.items() if isinstance(value, str)}
    (run / "environment.json").write_text(json.dumps(environment | strings))
    record = json.loads((run / "metrics.jsonl").read_text())
    for key in ("run", "digest"):  # as in a run of an earlier version
        del record[key]
    record["terms"][f"term{TITLE}"] = 1.0
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    for arguments in (
        ["--text"],
        ["--format", "markdown"],
        ["--format", "csv"],
        ["--format", "latex"],
        ["-o", "p.html"],
        ["--curves", "curves.csv"],
        ["--figure", "error", "-o", "error.svg"],
        ["--figure", "loss-terms", "-o", "terms.svg"],
    ):
        clean(*printed("report", run, *arguments))
    for name in ("p.html", "curves.csv", "error.svg", "terms.svg"):
        assert "owned" in clean(Path(name).read_text())
    clean(refused("evaluate", run))


def test_every_writer_of_a_table() -> None:
    table = Table(TITLE, [TITLE, "\r"], [[text(TITLE), text("\u2028")]], TITLE)
    for write in (to_markdown, to_csv, to_latex, to_html):
        assert "owned" in clean(str(write(table)))
    console = Console(width=200, record=True, force_terminal=False)
    print_table(table, console)
    clean(console.export_text())


def test_notes_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    warn(TITLE)
    note(TITLE)
    assert "\\x1b]0;owned" in clean(*capsys.readouterr())


def test_printable() -> None:
    assert printable("a\tb\n\x00\x7f\x85\u2029\u202e\udcff") == r"a\tb\n\x00\x7f\x85\u2029\u202e\udcff"
    assert printable("a\nb", lines=True) == "a\nb"
    for plain in ("Größe 大きさ [x] <y> \\", "\U0001f468\u200d\U0001f469\u200d\U0001f467"):  # joined by U+200D
        assert printable(plain) == plain
