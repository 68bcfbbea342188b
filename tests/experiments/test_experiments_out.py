"""Bad input, and the directory of runs: refused in a sentence, made once, found behind links and from anywhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coterie.config.options import from_file
from coterie.errors import InputError
from coterie.paper.protocols import MINI
from coterie.paper.reproduce import Reproduction
from tests.helpers.common import not_on_windows, refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "table5"], "no table or figure 'table5'; did you mean 'table"),
        (["reproduce", "tabel1", "--dry-run"], "did you mean 'table1'?"),
        (["reproduce", "table1", "--protocol", "big"], "no protocol 'big'; there is: paper, mini"),
        (["reproduce", "table1", "--only", "PCL,resnet9"], "rows: Baseline; "),
        (["reproduce", "table1", "--seeds", "0"], "--seeds must be at least 1"),
        (["reproduce", "table1", "--shard", "5/4"], "--shard is i/n"),
        (["reproduce", "table1", "--shard", "half"], "--shard is i/n"),
        (["reproduce", "table1", "--processes", "0"], "must be at least 1"),
        (["reproduce", "table1", "--launcher", "slurm"], "one of local, ray, not 'slurm'"),
        (["reproduce", "table1", "--format", "pdf"], "one of table, markdown, json"),
        (["reproduce", "table1", "--into", "nope.md"], "no file nope.md"),
        (["reproduce", "table1", "--only", "ema", "--protocol", "paper"], "cifar10 is not under data"),
    ],
)
def test_bad_input_gets_one_sentence_before_anything_starts(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    assert words in refused(*arguments, cwd=tmp_path)
    assert not any(tmp_path.iterdir())


def test_an_out_of_another_protocol_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "protocol.json").write_text('{"protocol": "paper"}')
    sentence = refused("reproduce", "table1", "--protocol", "mini", "--out", tmp_path)
    assert "made with the protocol paper, not mini" in sentence
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.txt").write_text("precious")
    assert "not empty" in refused("reproduce", "table1", "--out", other)
    assert "is a file" in refused("reproduce", "table1", "--out", other / "chapter1.txt")
    assert [file.name for file in other.iterdir()] == ["chapter1.txt"]
    for damaged in ("garbage", "{}", "[]"):
        (tmp_path / "protocol.json").write_text(damaged)
        assert "protocol.json is damaged" in refused("reproduce", "table1", "--show", "--out", tmp_path)


def test_an_out_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="cannot be written .*: choose another --out"):
        Reproduction("table1", MINI, tmp_path / "file" / "out", 1).prepare()
    assert (tmp_path / "file").read_text() == "precious"


def test_shards_that_start_together_make_one_directory(tmp_path: Path) -> None:
    def begin(number: int) -> None:
        reproduction = Reproduction("table1", MINI, tmp_path / f"{number // 8}", 1)
        reproduction.prepare()
        (reproduction.out / f"run{number}").mkdir()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(begin, range(160)))
    for out in tmp_path.iterdir():
        assert len(list(out.iterdir())) == 9 and "mini" in (out / "protocol.json").read_text()


@not_on_windows
def test_data_is_found_from_an_out_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "results").symlink_to("far/away")
    reproduction = Reproduction("table1", MINI, Path("results/mini"), 1)
    reproduction.prepare()
    root = reproduction.roots(reproduction.jobs())["cifar10"]
    assert (Path("results/mini").resolve() / root).resolve() == tmp_path / "data"


def test_a_run_is_read_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths are seen from the directory of runs, in which it was trained."""
    (tmp_path / "data").mkdir()
    run, teacher = (tmp_path / "results" / "mini" / name for name in ("KD-s0", "Baseline-s0"))
    run.mkdir(parents=True)
    teacher.mkdir()
    config = {
        "data": {"class_path": "cifar10", "init_args": {"root": "../../data"}},
        "method": {"class_path": "KD", "init_args": {"teacher": "Baseline-s0"}},
    }
    (run / "config.yaml").write_text(json.dumps(config))
    for place, name in ((tmp_path, run), (run, Path())):
        monkeypatch.chdir(place)
        stored = from_file(name / "config.yaml").config
        assert Path(stored["data"]["init_args"]["root"]).resolve() == tmp_path / "data"
        assert Path(stored["method"]["init_args"]["teacher"]) == teacher
    monkeypatch.chdir(run.parent)
    assert from_file(run / "config.yaml").config["method"]["init_args"]["teacher"] == "Baseline-s0"
    monkeypatch.chdir(tmp_path)
    said = refused("evaluate", run)  # there is a folder, but no CIFAR in it
    assert "coterie data cifar10" in said and f"change data.root in {run / 'config.yaml'}" in said
