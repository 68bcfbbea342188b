"""The study: its plan, the order of its runs, screening, the exact test, Holm's method, and its tables."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from coterie.cli.main import main
from coterie.errors import InputError
from coterie.paper import study
from coterie.paper.cells import table_cells
from coterie.paper.reproduce import Reproduction, default_out, planned_seeds
from coterie.paper.study import CIFAR_STUDY, FASHION_STUDY, RICH_STUDY, STUDIES, Study
from tests.helpers.common import refused
from tests.helpers.study import MIXED, shown, toy_study, write_study_run


def test_the_regimes_are_those_of_the_plan() -> None:
    common = {
        "batch": 128,
        "optimizer.lr": 0.1,
        "optimizer.momentum": 0.9,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 5e-4,
        "schedule": "Steps",
        "schedule.at": [0.5, 0.75],
        "schedule.factor": 0.1,
        "ramp_up": 80 / 300,
        "peers": 3,
        "ema": True,
        "data.limit_seed": "seed",
        "model": "resnet8",
    }
    own = {
        "cifar": {"data": "cifar10", "data.size": 16, "data.limit": 250, "epochs": 150, "evaluate_every": 15},
        "fashion": {
            "data": "fashion_mnist",
            "data.size": 14,
            "data.limit": 250,
            "epochs": 150,
            "evaluate_every": 15,
        },
        "rich": {"data": "cifar10", "data.size": 16, "data.limit": 2500, "epochs": 60, "evaluate_every": 6},
    }
    assert list(STUDIES) == list(own)
    for name, options in own.items():
        (setting,) = STUDIES[name].settings["study"]
        horizon = pytest.approx(2.5 / int(str(options["epochs"])))
        assert setting.options == {**common, **options, "ema_horizon": horizon}
    assert [planned_seeds("study", STUDIES[name]) for name in own] == [8, 8, 3]
    steps = 150 * math.ceil(2500 / 128)
    assert 1 - 1 / (CIFAR_STUDY.settings["study"][0].options["ema_horizon"] * steps) == pytest.approx(0.98)


def test_every_row_trains_what_its_name_says() -> None:
    def rows(protocol: Study) -> dict[str, tuple[object, ...]]:
        (setting,) = protocol.settings["study"]
        trained = {}
        for cell in table_cells("study", protocol, 1):
            options = dict(cell.jobs[0].options)
            lengths = (options["epochs"] / setting.options["epochs"], len(cell.jobs[0].evaluated))
            extra = options.keys() - setting.options.keys() - {"method"}
            assert {
                k: v for k, v in options.items() if k in setting.options and v != setting.options[k]
            }.keys() <= {
                "epochs",
                "evaluate_every",
            }
            trained[cell.row] = (options["method"], *lengths, extra)
        return trained

    mixed = {"mix", "mix.probability"}
    cifar = {
        "alone": ("Baseline", 1, 10, set()),
        "alone, 4x epochs": ("Baseline", 4, 10, set()),
        "CutMix": ("Baseline", 1, 10, mixed),
        "CutMix, 2x epochs": ("Baseline", 2, 10, mixed),
        "CutMix, 4x epochs": ("Baseline", 4, 10, mixed),
        "ONE": ("ONE", 1, 10, set()),
        "DML": ("DML", 1, 10, set()),
        "KDCL": ("KDCL", 1, 10, set()),
        "PCL": ("PCL", 1, 10, set()),
        "ONE + CutMix": ("ONE", 1, 10, mixed),
        "KDCL + CutMix": ("KDCL", 1, 10, mixed),
        "PCL + CutMix": ("PCL", 1, 10, mixed),
        "OwnMean, 1.5x epochs": ("OwnMean", 1.5, 10, set()),
        "OwnMean + CutMix, 1.5x epochs": ("OwnMean", 1.5, 10, mixed),
    }
    assert rows(CIFAR_STUDY) == cifar and list(rows(CIFAR_STUDY)) == list(cifar)
    left_out = {"alone, 4x epochs", "ONE", "DML", "ONE + CutMix"}
    assert rows(FASHION_STUDY) == {name: row for name, row in cifar.items() if name not in left_out}
    assert rows(RICH_STUDY) == {name: cifar[name] for name in ("alone", "alone, 4x epochs", "KDCL", "PCL")}
    for protocol in (CIFAR_STUDY, FASHION_STUDY):
        assert study.MIXING[protocol.name].keys() == {row.name for row in protocol.rows["study"] if row.mixed}


def test_the_primary_comparisons_are_the_six_of_the_plan() -> None:
    six = [
        ("PCL", "alone"),
        ("PCL", "alone, 4x epochs"),
        ("KDCL", "PCL"),
        ("PCL + CutMix", "CutMix"),
        ("PCL + CutMix", "CutMix, 4x epochs"),
        ("KDCL + CutMix", "CutMix"),
    ]
    ours = [
        ("OwnMean, 1.5x epochs", "PCL"),
        ("OwnMean + CutMix, 1.5x epochs", "CutMix"),
        ("OwnMean + CutMix, 1.5x epochs", "CutMix, 2x epochs"),
    ]

    def family(protocol: Study, name: str) -> list[tuple[str, str]]:
        return [(pair.row, pair.reference) for pair in protocol.primary if pair.family == name]

    assert family(CIFAR_STUDY, "Primary comparisons") == six
    assert family(FASHION_STUDY, "Primary comparisons") == [six[0], *six[2:]]
    for protocol in (CIFAR_STUDY, FASHION_STUDY):
        assert family(protocol, "Comparisons of OwnMean") == ours
        assert len(protocol.primary) == len(family(protocol, "Primary comparisons")) + len(ours)
    assert RICH_STUDY.primary == ()


def test_equal_cost_is_equal_computation() -> None:
    cost_of = {
        cell.row: cell.jobs[0].step_cost() * cell.jobs[0].epochs for cell in table_cells("study", CIFAR_STUDY, 1)
    }
    assert cost_of["PCL"] == cost_of["alone, 4x epochs"] == 4 * cost_of["alone"]
    assert cost_of["PCL + CutMix"] == cost_of["CutMix, 4x epochs"]
    assert cost_of["OwnMean + CutMix, 1.5x epochs"] == pytest.approx(cost_of["CutMix, 2x epochs"])


def test_each_row_of_the_split_changes_one_thing_of_its_reference() -> None:
    cells = {cell.row: cell for cell in table_cells("split", CIFAR_STUDY, 5)}
    rows = {row.name: row for row in CIFAR_STUDY.rows["split"]}

    def changes(row: str) -> set[str]:
        ours, theirs = (dict(cells[name].jobs[0].options) for name in (row, rows[row].reference))
        return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}

    assert {name: changes(name) for name in rows if rows[name].reference} == {
        "alone + EMA": set(),
        "alone, 3 views": {"method.views"},
        "PCL without distillation": {"method", "method.distil_ensemble", "method.peer_teacher"},
        "PCL, ensemble teacher alone": {"method.distil_ensemble"},
        "PCL": {"method.peer_teacher"},
        "PCL, mutual": {"method.peer_teacher"},
        "PCL, one view": {"method.input_augmentation"},
        "PCL, no ramp-up": {"method.ramp_up"},
        "KDCL, mean of all": {"method", "method.teacher"},
        "KDCL": {"method.teacher"},
    }
    assert cells["alone + EMA"].predictor == "mean1" and len(cells["PCL"].jobs) == 5
    own = {cell.row: cell.jobs[0].name for cell in table_cells("study", CIFAR_STUDY, 1)}
    assert all(cells[row].jobs[0].name == own[row] for row in ("alone", "KDCL", "PCL"))  # trained once
    assert default_out("split", CIFAR_STUDY) == default_out("study", CIFAR_STUDY) == Path("results/study/cifar")


def test_options_that_exist_today_are_recipes(tmp_path: Path) -> None:
    """The split's options, and the study's but for those of data and mixing, which have tests of their own."""
    split = Reproduction("split", toy_study(), tmp_path, 1)
    for job in split.jobs():
        assert split.recipe(job).method_class.__name__ == job.options["method"]


# The order of the runs


def test_runs_are_trained_seed_by_seed_primary_rows_first(tmp_path: Path) -> None:
    reproduction = Reproduction("study", toy_study(), tmp_path, 8)
    rows = {job.name: cell.row for cell in reproduction.cells for job in cell.jobs}
    order = [(rows[job.name], job.seed) for job in reproduction.jobs()]
    primary = ["alone", "alone, 4x epochs", "CutMix", "CutMix, 4x epochs", "KDCL", "PCL"]
    primary += ["KDCL + CutMix", "PCL + CutMix"]
    others = ["CutMix, 2x epochs", "ONE", "DML", "ONE + CutMix", *study.OURS]
    assert order == [(row, seed) for part in (primary, others) for seed in range(8) for row in part]
    assert [job.seed for job in Reproduction("study", RICH_STUDY, tmp_path, 3).jobs()] == [0] * 4 + [1] * 4 + [
        2
    ] * 4


def test_a_selection_keeps_the_order(tmp_path: Path) -> None:
    reproduction = Reproduction("study", toy_study(), tmp_path, 2, only="DML;PCL;alone")
    assert [(job.options["method"], job.seed) for job in reproduction.jobs()] == [
        *(("Baseline", 0), ("PCL", 0), ("Baseline", 1), ("PCL", 1)),
        *(("DML", 0), ("DML", 1)),
    ]


# Screening


def test_screening_tries_each_probability_on_unused_training_images(tmp_path: Path) -> None:
    reproduction = Reproduction("screening", CIFAR_STUDY, tmp_path, 2)
    jobs = reproduction.jobs()
    assert len(jobs) == len(MIXED) * 3 * 2 and {job.seed for job in jobs} == {100, 101}
    assert all(job.options["data.val_limit"] == 1000 and job.options["mix"] == "CutMix" for job in jobs)
    tried: dict[str, set[object]] = {}
    for cell in reproduction.cells:
        tried.setdefault(cell.row, set()).add(cell.jobs[0].options["mix.probability"])
    assert tried == {row: {0.25, 0.5, 1.0} for row in MIXED}
    lengths = {cell.row: cell.jobs[0].epochs for cell in reproduction.cells}
    assert (lengths["CutMix"], lengths["CutMix, 2x epochs"], lengths["CutMix, 4x epochs"]) == (150, 300, 600)
    assert {job.seed for job in Reproduction("study", CIFAR_STUDY, tmp_path, 8).jobs()}.isdisjoint({100, 101})
    assert default_out("screening", CIFAR_STUDY) != default_out("study", CIFAR_STUDY)


def test_screening_takes_the_lowest_mean_error(
    toy: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = {
        "CutMix": {0.25: (39.0, 38.0), 0.5: (38.0, 38.4), 1.0: (36.0, 40.0)},  # means 38.5, 38.2, 38.0
        "PCL + CutMix": {0.25: (35.1, 35.3), 0.5: (35.3, 35.1), 1.0: (36.0, 37.0)},  # a tie: the lower
        "ONE + CutMix": {0.25: (30.0, 30.0), 0.5: (31.0, 31.0), 1.0: (29.0,)},  # one run is missing
    }
    for cell in table_cells("screening", toy, 2):
        each = errors.get(cell.row, {}).get(cell.probability or 0, ())
        for seed, error in zip((100, 101), each, strict=False):
            write_study_run(tmp_path / "x", cell, seed, error)
    (tmp_path / "x" / "protocol.json").write_text('{"protocol": "toy"}')
    read = json.loads(shown(capsys, "screening", "--out", tmp_path / "x", "--format", "json"))
    assert read["choices"] == {"CutMix": 1.0, "PCL + CutMix": 0.25}
    text = shown(capsys, "screening", "--out", tmp_path / "x", "--only", "CutMix;ONE + CutMix")
    assert "Taken: CutMix: 1." in text and "Not decided yet: ONE + CutMix." in text
    assert len(re.findall("taken", text)) == 1 and "38.50 ± 0.71" in text
    assert "ONE + CutMix, probability 1: seed 101 missing" in text
    one_seed = ("screening", "--out", tmp_path / "x", "--seeds", 1, "--format", "json")
    assert json.loads(shown(capsys, *one_seed))["choices"] == {}  # nothing is chosen from one seed


def test_rows_that_are_not_screened_are_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STUDIES, "toy", toy_study(mixing=None))
    message = refused("reproduce", "study", "--protocol", "toy", "--out", tmp_path / "x")
    assert "for CutMix; CutMix, 2x epochs; " in message and "coterie reproduce screening --protocol toy" in message
    one = refused("reproduce", "study", "--protocol", "toy", "--out", tmp_path / "x", "--only", "PCL + CutMix")
    assert "not chosen yet for PCL + CutMix: run" in one
    assert not (tmp_path / "x").exists()
    text = shown(capsys, "study", "--out", tmp_path / "x")
    assert text.count("not screened yet") == len(MIXED) and "PCL + CutMix: not screened yet" in text
    chosen = Reproduction("study", toy_study(mixing=None), tmp_path / "x", 1, only="alone;KDCL")
    chosen.check_screened()  # these need no screening


def test_the_choice_becomes_the_rows_option() -> None:
    for cell in table_cells("study", toy_study(0.25), 1):
        assert cell.jobs[0].options.get("mix.probability") == (0.25 if cell.row in MIXED else None)


# Statistics


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "study"], "The protocol mini has no study: choose --protocol cifar or fashion or rich."),
        (["reproduce", "screening", "--protocol", "rich"], "choose --protocol cifar or fashion."),
        (
            ["reproduce", "table1", "--protocol", "cifar"],
            "The protocol cifar has no table1: choose --protocol paper",
        ),
        (["reproduce", "studdy", "--protocol", "cifar"], "did you mean 'study'?"),
        (["reproduce", "study", "--protocol", "cifar", "--only", "PCL2"], "rows: alone; alone, 4x epochs; CutMix"),
        (["reproduce", "study", "--protocol", "cifar", "--against", "Baseline"], "there are alone; alone, 4x"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in refused(*arguments, cwd=tmp_path)
    assert not any(tmp_path.iterdir())


def test_unknown_seeds_are_the_plans_own_words() -> None:
    with pytest.raises(InputError, match="the plan of split by cifar has 5 seeds"):
        table_cells("split", CIFAR_STUDY, 6)


def test_the_study_is_trained_by_the_same_runner(
    toy: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "study", "--protocol", "toy", "--out", str(tmp_path / "x"), "--seeds", "1"]
    main([*command, "--only", "alone", "--processes", "1", "--format", "json"])
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)["rows"]
    (job,) = Reproduction("study", toy, tmp_path / "x", 1, only="alone").jobs()
    records = (tmp_path / "x" / job.name / "metrics.jsonl").read_text().splitlines()
    assert row["error"]["values"] == [json.loads(records[-1])["predictors"]["peer1"]["error"]]
    assert f"[1/1] {job.name}: done" in captured.err and row["cost"] == 1.0 and row["notes"] == []
