"""The study: its plan, the order of its runs, screening, the exact test, Holm's method, and its tables."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coterie.cli.main import main
from coterie.errors import InputError
from coterie.experiments.job import cost
from coterie.metrics.seeds import holm_adjusted, paired_differences, seeds_won, sign_flip_p
from coterie.paper import study
from coterie.paper.render import END
from coterie.paper.reproduce import Reproduction, default_out, planned_seeds
from coterie.paper.sections import of_the_study
from coterie.paper.study import CIFAR_STUDY, FASHION_STUDY, PRIMARY, RICH_STUDY, STUDIES, Study
from coterie.paper.tables import Cell
from coterie.report import formats, page
from tests.helpers.common import refused
from tests.helpers.experiment import TOY, write_run

MIXED = ("CutMix", "CutMix, 2x epochs", "CutMix, 4x epochs", "ONE + CutMix", "KDCL + CutMix", "PCL + CutMix")
ERRORS = {  # of eight seeds
    "alone": [40.0, 41.0, 40.5, 39.5, 40.2, 41.3, 40.8, 40.1],
    "alone, 4x epochs": [39.9, 40.2, 40.9, 39.1, 39.8, 41.0, 41.0, 39.9],
    "CutMix": [37.0, 38.0, 37.5, 37.2, 37.1, 38.4, 37.9, 37.0],
    "CutMix, 4x epochs": [36.5, 36.6, 37.0, 36.8, 36.2, 37.9, 37.1, 36.3],
    "KDCL": [37.9, 37.2, 37.6, 37.0, 36.9, 38.0, 37.7, 37.3],
    "PCL": [38.0, 38.6, 38.1, 37.9, 38.3, 38.9, 38.8, 38.4],
    "KDCL + CutMix": [36.0, 36.9, 36.1, 36.0, 36.4, 37.0, 36.8, 36.1],
    "PCL + CutMix": [36.9, 37.4, 37.6, 36.5, 37.2, 37.6, 37.3, 36.8],
}


def toy_study(mixing: float | None = 0.5) -> Study:
    options = {**TOY, "evaluate_every": 1}
    return study.study(
        "toy",
        "digits, ResNet8",
        options,
        study.CIFAR_ROWS,
        seeds=8,
        primary=PRIMARY,
        mixing=dict.fromkeys(MIXED, mixing),
        split=study.SPLIT_ROWS,
    )


def write_study_run(out: Path, cell: Cell, seed: int, error: float) -> None:
    """A finished run whose deployed network has this error; its NLL is a tenth of it, its images are 10,000."""
    job = next(job for job in cell.jobs if job.seed == seed)
    every = int(job.options["evaluate_every"])
    path = write_run(out, job, {"peer1": error, "mean1": error}, train=cost(job) * every)
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for scores in record["predictors"].values():
            scores["nll"] = scores["error"] / 10
    kept = [json.dumps(records[epoch]) + "\n" for epoch in job.evaluated]
    (path / "metrics.jsonl").write_text("".join(kept))
    (path / "data.json").write_text(json.dumps({"images": {"test": 10_000}}))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """All eight seeds of the primary rows."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "protocol.json").write_text('{"protocol": "toy"}')
    for cell in study.cells("study", toy_study(), 8):
        for seed, error in enumerate(ERRORS.get(cell.row, [])):
            write_study_run(out, cell, seed, error)
    return out


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Study:
    protocol = toy_study()
    monkeypatch.setitem(STUDIES, "toy", protocol)
    return protocol


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([str(argument) for argument in ("reproduce", *arguments, "--protocol", "toy", "--show")])
    return capsys.readouterr().out


# The plan


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
        told = {}
        for cell in study.cells("study", protocol, 1):
            options = dict(cell.jobs[0].options)
            lengths = (options["epochs"] / setting.options["epochs"], len(cell.jobs[0].evaluated))
            extra = options.keys() - setting.options.keys() - {"method"}
            assert {
                k: v for k, v in options.items() if k in setting.options and v != setting.options[k]
            }.keys() <= {
                "epochs",
                "evaluate_every",
            }
            told[cell.row] = (options["method"], *lengths, extra)
        return told

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
    }
    assert rows(CIFAR_STUDY) == cifar and list(rows(CIFAR_STUDY)) == list(cifar)
    fashion = ("alone", "CutMix", "CutMix, 4x epochs", "KDCL", "PCL", "KDCL + CutMix", "PCL + CutMix")
    assert rows(FASHION_STUDY) == {name: cifar[name] for name in fashion}
    assert rows(RICH_STUDY) == {name: cifar[name] for name in ("alone", "alone, 4x epochs", "KDCL", "PCL")}
    for protocol in (CIFAR_STUDY, FASHION_STUDY):
        assert protocol.mixing.keys() == {row.name for row in protocol.rows["study"] if row.mixed}


def test_the_primary_comparisons_are_the_six_of_the_plan() -> None:
    six = [
        ("PCL", "alone"),
        ("PCL", "alone, 4x epochs"),
        ("KDCL", "PCL"),
        ("PCL + CutMix", "CutMix"),
        ("PCL + CutMix", "CutMix, 4x epochs"),
        ("KDCL + CutMix", "CutMix"),
    ]
    assert [(pair.row, pair.reference) for pair in CIFAR_STUDY.primary] == six
    assert [(pair.row, pair.reference) for pair in FASHION_STUDY.primary] == [six[0], *six[2:]]
    assert RICH_STUDY.primary == ()


def test_equal_cost_is_equal_computation() -> None:
    cost_of = {cell.row: cost(cell.jobs[0]) * cell.jobs[0].epochs for cell in study.cells("study", CIFAR_STUDY, 1)}
    assert cost_of["PCL"] == cost_of["alone, 4x epochs"] == 4 * cost_of["alone"]
    assert cost_of["PCL + CutMix"] == cost_of["CutMix, 4x epochs"]


def test_each_row_of_the_split_changes_one_thing_of_its_reference() -> None:
    cells = {cell.row: cell for cell in study.cells("split", CIFAR_STUDY, 5)}
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
    own = {cell.row: cell.jobs[0].name for cell in study.cells("study", CIFAR_STUDY, 1)}
    assert all(cells[row].jobs[0].name == own[row] for row in ("alone", "KDCL", "PCL"))  # trained once
    assert default_out("split", CIFAR_STUDY) == default_out("study", CIFAR_STUDY) == Path("results/study/cifar")


def test_options_that_exist_today_are_recipes(tmp_path: Path) -> None:
    """The split's options, and the study's but for those of data and mixing, which have tests of their own."""
    split = Reproduction("split", toy_study(), tmp_path, 1)
    for job in split.jobs():
        assert split.recipe(job).method_class.__name__ == job.options["method"]


# The order of the runs


def test_runs_are_trained_seed_by_seed_primary_rows_first(tmp_path: Path) -> None:
    made = Reproduction("study", toy_study(), tmp_path, 8)
    rows = {job.name: cell.row for cell in made.cells for job in cell.jobs}
    order = [(rows[job.name], job.seed) for job in made.jobs()]
    primary = ["alone", "alone, 4x epochs", "CutMix", "CutMix, 4x epochs", "KDCL", "PCL"]
    primary += ["KDCL + CutMix", "PCL + CutMix"]
    others = ["CutMix, 2x epochs", "ONE", "DML", "ONE + CutMix"]
    assert order == [(row, seed) for part in (primary, others) for seed in range(8) for row in part]
    assert [job.seed for job in Reproduction("study", RICH_STUDY, tmp_path, 3).jobs()] == [0] * 4 + [1] * 4 + [
        2
    ] * 4


def test_a_selection_keeps_the_order(tmp_path: Path) -> None:
    made = Reproduction("study", toy_study(), tmp_path, 2, only="DML;PCL;alone")
    assert [(job.options["method"], job.seed) for job in made.jobs()] == [
        *(("Baseline", 0), ("PCL", 0), ("Baseline", 1), ("PCL", 1)),
        *(("DML", 0), ("DML", 1)),
    ]


# Screening


def test_screening_tries_each_probability_on_unused_training_images(tmp_path: Path) -> None:
    made = Reproduction("screening", CIFAR_STUDY, tmp_path, 2)
    jobs = made.jobs()
    assert len(jobs) == 6 * 3 * 2 and {job.seed for job in jobs} == {100, 101}
    assert all(job.options["data.val_limit"] == 1000 and job.options["mix"] == "CutMix" for job in jobs)
    tried: dict[str, set[object]] = {}
    for cell in made.cells:
        tried.setdefault(cell.row, set()).add(cell.jobs[0].options["mix.probability"])
    assert tried == {row: {0.25, 0.5, 1.0} for row in MIXED}
    lengths = {cell.row: cell.jobs[0].epochs for cell in made.cells}
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
    for cell in study.cells("screening", toy, 2):
        each = errors.get(cell.row, {}).get(study.probability_of(cell) or 0, ())
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
    told = refused("reproduce", "study", "--protocol", "toy", "--out", tmp_path / "x")
    assert "for CutMix; CutMix, 2x epochs; " in told and "coterie reproduce screening --protocol toy" in told
    one = refused("reproduce", "study", "--protocol", "toy", "--out", tmp_path / "x", "--only", "PCL + CutMix")
    assert "not chosen yet for PCL + CutMix: run" in one
    assert not (tmp_path / "x").exists()
    text = shown(capsys, "study", "--out", tmp_path / "x")
    assert text.count("not screened yet") == 6 and "PCL + CutMix: not screened yet" in text
    chosen = Reproduction("study", toy_study(mixing=None), tmp_path / "x", 1, only="alone;KDCL")
    study.require_screened(toy_study(mixing=None), chosen.cells)  # these need no screening


def test_the_choice_becomes_the_rows_option() -> None:
    for cell in study.cells("study", toy_study(0.25), 1):
        assert cell.jobs[0].options.get("mix.probability") == (0.25 if cell.row in MIXED else None)


# Statistics


def scipys_p(differences: list[float]) -> float:
    ours, theirs = np.array(differences), np.zeros(len(differences))
    test = stats.permutation_test(
        (ours, theirs),
        lambda x, y: float(np.mean(x - y)),
        permutation_type="samples",
        n_resamples=np.inf,
        alternative="two-sided",
    )
    return float(test.pvalue)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_the_sign_flip_test_is_scipys(count: int) -> None:
    random = np.random.default_rng(count)
    for shift in (0.0, -0.5, 2.0):
        differences = [float(value) for value in random.normal(shift, 1, count)]
        assert sign_flip_p(differences) == pytest.approx(scipys_p(differences))


def test_ties_count_with_the_observed_pattern() -> None:
    """In hundredths of a point, as errors of 10,000 images are: 0.1 + 0.2 is not 0.3 in binary."""
    hundredths = [10, 20, -30, 40, 0, 10, -20, 30]
    sums = [
        abs(sum(s * d for s, d in zip(signs, hundredths, strict=True))) for signs in product((1, -1), repeat=8)
    ]
    expected = sum(total >= abs(sum(hundredths)) for total in sums) / 256
    assert sign_flip_p([d / 100 for d in hundredths]) == expected
    assert sign_flip_p([0.0, 0.0]) == 1.0 and sign_flip_p([]) is None
    assert sign_flip_p([-1.0] * 8) == 2 / 256
    assert seeds_won([-0.1, 0.0, 0.1 + 0.2 - 0.3, -2.0]) == 2


def holm_by_definition(p_values: dict[str, float], family: int) -> dict[str, float]:
    """The smallest level at which Holm's procedure rejects: max over smaller p values of (family - rank) p."""
    return {
        name: min(
            1.0,
            max(
                (family - sum(q < other for q in p_values.values())) * other
                for other in p_values.values()
                if other <= p
            ),
        )
        for name, p in p_values.items()
    }


def test_holm_is_its_definition() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    adjusted = holm_adjusted(p_values, 4)
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})  # by hand
    random = np.random.default_rng(0)
    for family in (6, 8):
        p_values = {str(i): float(p) for i, p in enumerate(random.uniform(0, 0.3, 6))}
        assert holm_adjusted(p_values, family) == pytest.approx(holm_by_definition(p_values, family))
    assert holm_adjusted({"a": 0.01}, 6) == {"a": pytest.approx(0.06)}  # five are still to come
    assert holm_adjusted({"a": 2 / 256, "b": 2 / 256}, 6) == dict.fromkeys("ab", pytest.approx(12 / 256))
    assert holm_adjusted({}, 6) == {}


def test_differences_are_those_of_common_seeds() -> None:
    ours, theirs = {0: 1.0, 1: 5.0, 2: 4.0}, {2: 1.0, 0: 2.0, 3: 9.0}
    assert paired_differences(ours, theirs) == [-1.0, 3.0]


# Tables


def test_the_tables_numbers_are_those_of_the_runs(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    rows = {row["row"]: row for row in read["rows"]}
    assert list(rows) == [row.name for row in study.CIFAR_ROWS]
    pcl = rows["PCL"]
    assert pcl["error"]["mean"] == pytest.approx(np.mean(ERRORS["PCL"])) and pcl["error"]["count"] == 8
    assert pcl["error"]["std"] == pytest.approx(np.std(ERRORS["PCL"], ddof=1))
    interval = stats.ttest_rel(ERRORS["PCL"], ERRORS["alone"]).confidence_interval(0.95)
    difference = pcl["difference"]
    assert pcl["reference"] == "alone"
    assert difference["mean"] - difference["half_width"] == pytest.approx(interval.low)
    assert pcl["won"] == 8 and pcl["nll"]["mean"] == pytest.approx(np.mean(ERRORS["PCL"]) / 10)
    assert pcl["cost"] == pytest.approx(4.0) and rows["alone, 4x epochs"]["cost"] == pytest.approx(4.0)
    assert rows["CutMix"]["reference"] == "alone" and rows["KDCL + CutMix"]["reference"] == "CutMix"
    assert rows["ONE"]["error"]["count"] == 0 and rows["ONE"]["notes"] == ["seeds 0, 1, 2, 3, 4, 5, 6, 7 missing"]
    primary = {entry["name"]: entry for entry in read["primary"]}
    assert list(primary) == [pair.name for pair in PRIMARY]
    raw = {
        pair.name: scipys_p([a - b for a, b in zip(ERRORS[pair.row], ERRORS[pair.reference], strict=True)])
        for pair in PRIMARY
    }
    adjusted = holm_by_definition(raw, 6)
    for name, entry in primary.items():
        assert entry["p"] == pytest.approx(raw[name]) and entry["adjusted"] == pytest.approx(adjusted[name])
    assert pcl["comparison"] == primary["PCL - alone"]
    verdicts = {name: entry["verdict"] for name, entry in primary.items()}
    assert verdicts == {
        "PCL - alone": "PCL wins",
        "PCL - alone, 4x epochs": "PCL wins",
        "KDCL - PCL": "KDCL wins",
        "PCL + CutMix - CutMix": "no win",  # one seed has the other sign
        "PCL + CutMix - CutMix, 4x epochs": "no win",
        "KDCL + CutMix - CutMix": "KDCL + CutMix wins",
    }


def test_a_win_can_be_the_references(toy: Study, tmp_path: Path) -> None:
    cells = {cell.row: cell for cell in study.cells("study", toy, 8)}
    for seed in range(8):
        write_study_run(tmp_path / "x", cells["alone"], seed, 30.0 + seed)
        write_study_run(tmp_path / "x", cells["PCL"], seed, 31.0 + 1.1 * seed)
    (tmp_path / "x" / "protocol.json").write_text('{"protocol": "toy"}')
    entry = Reproduction("study", toy, tmp_path / "x", 8).study_tables().plain["primary"][0]
    assert entry["adjusted"] == pytest.approx(6 * 2 / 256) and entry["verdict"] == "alone wins"


def test_there_is_no_verdict_before_the_last_seed(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = next(cell for cell in study.cells("study", toy, 8) if cell.row == "PCL").jobs[7]
    (out / last.name / "metrics.jsonl").unlink()
    text = shown(capsys, "study", "--out", out)
    assert text.count("open: 7 of 8 seeds") == 3 and "PCL wins" not in text
    read = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    assert read["primary"][0]["p"] == 2 / 128 and read["primary"][0]["difference"]["count"] == 7
    assert "open: 2 of 8 seeds" in shown(capsys, "study", "--out", out, "--seeds", 2)  # fewer than are planned


def test_seeds_beyond_the_plan_are_refused_and_not_counted(toy: Study, out: Path) -> None:
    assert "has 8 seeds" in refused("reproduce", "study", "--protocol", "toy", "--out", out, "--seeds", 9)
    job = next(cell for cell in study.cells("study", toy, 8) if cell.row == "alone").jobs[0]
    (out / job.name).rename(out / job.name.replace("-s0", "-s8"))
    tables = Reproduction("study", toy, out, 8).study_tables()
    assert tables.plain["rows"][0]["error"]["count"] == 7


def test_terminal_and_markdown_have_the_same_cells(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    text, written = (shown(capsys, "study", "--out", out, "--format", form) for form in ("table", "markdown"))
    lines = [line for line in written.splitlines() if line.startswith("| ")]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["row", "error %", "n", "compared with", "difference", "seeds won", "Holm p", "NLL", "cost"]
    pcl = next(row for row in cells if row[0] == "PCL")
    interval = stats.ttest_rel(ERRORS["PCL"], ERRORS["alone"]).confidence_interval(0.95)
    difference = f"-2.05 ± {(interval.high - interval.low) / 2:.2f}"
    assert pcl[1:6] == ["38.38 ± 0.37", "8", "alone", difference, "8 of 8"]
    assert pcl[6:] == ["0.0469", "3.837 ± 0.037", "4.0"]  # 6 x 2/256
    (head,) = (number for number, row in enumerate(cells) if row[0] == "comparison")
    assert cells[head] == ["comparison", "n", "difference", "seeds won", "p", "Holm p", "verdict"]
    assert len(cells[head:]) == 8 and cells[head + 2][0] == "PCL - alone"
    on_terminal = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line
    ]
    assert on_terminal == [row for row in cells if set(row[0]) != {"-"} and row[0] not in ("row", "comparison")]
    assert "| **KDCL + CutMix wins** |" in written and "| no win |" in written
    for form in (text, written):
        joined = " ".join(form.split())
        assert "Seeds measure this test set" in joined and "over the 6 primary comparisons" in joined
        half = 196 * math.sqrt(np.mean(ERRORS["alone"]) / 100 * (1 - np.mean(ERRORS["alone"]) / 100) / 10_000)
        assert f"10,000 test images would move the error of alone by ± {half:.1f} points" in joined


def test_a_selection_shows_its_rows_and_comparisons_with_the_whole_familys_p(
    toy: Study, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = json.loads(shown(capsys, "study", "--out", out, "--format", "json"))
    read = json.loads(shown(capsys, "study", "--out", out, "--only", "alone;PCL;KDCL", "--format", "json"))
    assert [row["row"] for row in read["rows"]] == ["alone", "KDCL", "PCL"]
    assert read["primary"] == [full["primary"][0], full["primary"][2]]
    alone = json.loads(shown(capsys, "study", "--out", out, "--only", "PCL + CutMix", "--format", "json"))
    assert [row["reference"] for row in alone["rows"]] == ["CutMix"] and alone["primary"] == []
    assert alone["rows"][0]["difference"]["count"] == 8


def test_against_compares_all_rows_with_one(toy: Study, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    against = ("--against", "alone, 4x epochs")
    rows = json.loads(shown(capsys, "study", "--out", out, *against, "--format", "json"))["rows"]
    assert [row["row"] for row in rows if not row["reference"]] == ["alone, 4x epochs"]
    pcl = next(row for row in rows if row["row"] == "PCL")
    mean = np.mean(np.subtract(ERRORS["PCL"], ERRORS["alone, 4x epochs"]))
    assert pcl["difference"]["mean"] == pytest.approx(mean)
    assert pcl["comparison"]["name"] == "PCL - alone, 4x epochs"


def test_a_document_has_the_tables_in_their_place(
    toy: Study, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, begin = tmp_path / "study.md", "<!-- coterie reproduce study --protocol toy -->"
    document.write_text(f"# Study\n\n{begin}\nold\n{END}\nRest.\n")
    shown(capsys, "study", "--out", out, "--into", document)
    text = document.read_text()
    assert text.startswith(f"# Study\n\n{begin}\n") and text.endswith(f"{END}\nRest.\n") and "old" not in text
    assert text.count("| PCL - alone |") == 1 and text.count("| PCL |") == 1
    fewer = Reproduction("study", toy, out, 2).marker
    assert fewer == "<!-- coterie reproduce study --protocol toy --seeds 2 -->"


def test_the_split_names_what_a_row_isolates(toy: Study, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = json.loads(shown(capsys, "split", "--out", out, "--format", "json"))
    rows = {row["row"]: row for row in read["rows"]}
    assert rows["alone"]["error"]["count"] == 5 and read["primary"] == []  # five of the study's eight
    assert rows["KDCL"]["isolates"] == "choice of the teacher by the label"
    averaged = rows["alone + EMA"]
    assert averaged["difference"] == {"mean": 0.0, "half_width": 0.0, "count": 5} and averaged["won"] == 0
    assert "Holm" not in shown(capsys, "split", "--out", out)


def test_the_split_is_drawn_from_what_there_is(
    toy: Study, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, "split", "--out", out)
    picture = (out / "split.svg").read_text()
    assert "alone + EMA - alone" in picture and "KDCL - KDCL, mean of all" not in picture  # the latter has no runs
    shown(capsys, "split", "--out", out)
    assert (out / "split.svg").read_text() == picture
    empty = tmp_path / "empty"
    empty.mkdir()
    shown(capsys, "split", "--out", empty)
    assert not any(empty.iterdir())


def test_the_report_has_the_same_tables(toy: Study, out: Path, tmp_path: Path) -> None:
    assert of_the_study([tmp_path / "none"], {"toy": toy}) == []
    (section,) = of_the_study([tmp_path], {"toy": toy})
    expected = Reproduction("study", toy, out, 8).study_tables().tables
    assert section.tables[:2] == expected
    assert [table.title.partition(":")[0] for table in section.tables] == ["Study", "Primary comparisons", "Split"]
    page.write([out], tmp_path / "page.html", paper=[section])
    html = (tmp_path / "page.html").read_text()
    assert "The study" in html and "KDCL + CutMix wins" in html and "Seeds measure this test set" in html
    assert "KDCL + CutMix wins" in formats.latex(section.tables[1])


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
        study.cells("split", CIFAR_STUDY, 6)


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
