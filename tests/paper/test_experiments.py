"""The experiments as data: the paper's numbers, its protocol to the letter, cells, names, costs, statistics."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coterie.errors import InputError
from coterie.experiments.estimate import Speed, estimate_seconds, format_duration, wall_clock
from coterie.experiments.job import Job, distinct, shard
from coterie.metrics.seeds import paired
from coterie.models import networks
from coterie.paper.cells import select_cells, table_cells
from coterie.paper.numbers import FIG5, PAPER_NUMBERS, PARAMETERS, TABLE1, TABLE2, TABLE3, TABLE4
from coterie.paper.protocols import EXPERIMENTS, MINI, PAPER, PROTOCOLS
from coterie.paper.reproduce import Reproduction

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec" / "pcl.md"
DATA = {"C10": "CIFAR-10", "C100": "CIFAR-100", "ImageNet": "ImageNet"}


@pytest.fixture(scope="module")
def spec() -> str:
    if not SPEC.is_file():
        pytest.skip("the specification pcl.md is not beside this checkout")
    return SPEC.read_text()


def numbers(text: str) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in re.findall(r"(\d+\.\d+)\+-(\d+\.\d+)", text)]


def test_table1_is_the_specifications(spec: str) -> None:
    table = spec.partition("Table 1\n")[2].partition("\n\n")[0].splitlines()
    header = [cell.strip() for cell in table[0].strip("|").split("|")][2:]
    numbers_read = {}
    for line in table[2:]:
        data, net, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        numbers_read[DATA[data], net] = dict(zip(header, [numbers(cell)[0] for cell in rest], strict=True))
    assert len(numbers_read) == 13 and numbers_read == TABLE1


def test_the_other_tables_are_the_specifications(spec: str) -> None:
    text = " ".join(spec.partition("Table 2 (")[2].split())
    table2, _, text = text.partition("Table 3 (")
    table3, _, text = text.partition("Table 4 (")
    table4, _, figures = text.partition("Fig. 3:")
    assert numbers(table2) == [tuple(n) for n in TABLE2["CIFAR-100", "ResNet110"].values()]
    rows = re.findall(r"(ONE-E|FFL|OKDDip-E|PCL-E) ([\d.+-]+) ([\d.]+)M / ([\d.+-]+) ([\d.]+)M", table3)
    assert [row[0] for row in rows] == list(PARAMETERS)
    for name, ten, size10, hundred, size100 in rows:
        assert numbers(ten) == [TABLE3["CIFAR-10", "ResNet110"][name]]
        assert numbers(hundred) == [TABLE3["CIFAR-100", "ResNet110"][name]]
        assert {"CIFAR-10": float(size10), "CIFAR-100": float(size100)} == PARAMETERS[name]
    rows = re.findall(r"(Baseline|KD|PCL) ([\d.+-]+) / ([\d.+-]+?)[;.]? ", table4 + " ")
    assert [row[0] for row in rows] == ["Baseline", "KD", "PCL"]
    for name, ten, hundred in rows:
        assert numbers(ten) == [TABLE4["CIFAR-10", "ResNet32"][name]]
        assert numbers(hundred.rstrip(".") + " ") == [TABLE4["CIFAR-100", "ResNet32"][name]]
    assert "four branches: 19.8 %" in figures and "0.7 points worse" in figures
    full = TABLE2["CIFAR-100", "ResNet110"]["+ L_pm (full)"]
    assert FIG5["CIFAR-100", "ResNet110"] == {
        "3 peers": full,
        "4 peers": (19.8, None),
        "3 peers, w/o InAu": (pytest.approx(full.mean + 0.7, abs=0.03), None),
    }


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_paper_has_a_cell_for_every_number_of_the_paper(experiment: str) -> None:
    cells = table_cells(experiment, PAPER, 3)
    numbers_of_cells = {(cell.setting.paper_setting, cell.row): cell.paper for cell in cells if cell.paper}
    settings = {setting.paper_setting for setting in PAPER.settings[experiment]}
    curves = {"fig3": lambda row: "P." not in row}.get(experiment, lambda row: True)
    wanted = {
        (setting, row): number
        for setting, rows in PAPER_NUMBERS[experiment].items()
        if setting in settings
        for row, number in rows.items()
        if curves(row)
    }
    assert numbers_of_cells == wanted and len(numbers_of_cells) == sum(cell.paper is not None for cell in cells)


def test_the_protocol_is_the_papers_to_the_letter() -> None:
    for cell in table_cells("table1", PAPER, 3):
        options, imagenet = cell.jobs[0].options, cell.setting.paper_setting[0] == "ImageNet"
        epochs, images = (90, 1281167) if imagenet else (300, 50000)
        steps = epochs * math.ceil(images / 128)
        assert (options["epochs"], options["batch"], options["peers"]) == (epochs, 128, 3)
        assert [at * epochs for at in options["schedule.at"]] == pytest.approx(
            [30, 60] if imagenet else [150, 225]
        )
        assert options["ramp_up"] * epochs == pytest.approx(80)
        assert 1 - 1 / (options["ema_horizon"] * steps) == pytest.approx(0.999, abs=1e-12)
        sgd = [options[f"optimizer.{name}"] for name in ("lr", "momentum", "nesterov", "weight_decay")]
        assert sgd == [0.1, 0.9, True, 5e-4]
        weight = options.get("method.weight", 1.0)  # lambda belongs to w(e), which DML and KDCL do not have
        ramped = options["method"] in ("CL", "ONE", "FFL", "OKDDip", "PCL")
        assert weight == (0.1 if imagenet and ramped else 1.0)
        assert len(cell.jobs) == 3 and "data.limit" not in options
    assert networks()["resnet18"]().default_cut == "layer3"  # the last two stages per peer


def test_mini_is_the_same_science_smaller() -> None:
    options = table_cells("table1", MINI, 1)[0].jobs[0].options
    assert {"data": "cifar10", "data.size": 16, "data.limit": 250, "model": "resnet8", "epochs": 300}.items() <= (
        options.items()
    )
    assert 1 - 1 / (options["ema_horizon"] * 300 * math.ceil(2500 / 128)) == pytest.approx(0.98)
    jobs = {cell.row: cell.jobs[0] for cell in table_cells("table1", MINI, 1)}
    assert len(jobs) == 13 and jobs["PCL, stem shared"].options == {**jobs["PCL"].options, "cut": "stage1"}
    assert jobs["Baseline"].name == jobs["Baseline + EMA"].name  # one run, two of its predictors
    assert jobs["Baseline, 4x epochs"].epochs == 1200 and jobs["Baseline, 3 views"].options["method.views"] == 3
    teacher = jobs["KD"].needs
    assert teacher is not None and teacher.options["model"] == "resnet20" and teacher.options["epochs"] == 300
    assert {job.needs.name for job in table_cells("table1", MINI, 3)[4].jobs if job.needs} == {teacher.name}
    assert jobs["Baseline"].evaluated == [*range(9, 300, 10)]
    assert table_cells("table1", PROTOCOLS["smoke"], 1)[0].jobs[0].options == {**options, "epochs": 3}


def test_mini100_is_cifar100_with_fewer_images_and_a_larger_network() -> None:
    options = table_cells("table1", PROTOCOLS["mini100"], 1)[0].jobs[0].options
    other = {"data": "cifar100", "data.size": 16, "data.limit": 50, "model": "resnet14"}
    assert options == {**table_cells("table1", MINI, 1)[0].jobs[0].options, **other}


def test_every_row_trains_and_reads_what_its_name_says() -> None:
    def rows(experiment: str) -> dict[str, tuple[str, dict[str, object], str | None]]:
        return {
            cell.row: (
                str(cell.jobs[0].options["method"]),
                {k.removeprefix("method."): v for k, v in cell.jobs[0].options.items() if k.startswith("method.")},
                cell.predictor,
            )
            for cell in table_cells(experiment, PAPER, 1)
            if "ImageNet" not in cell.setting.title
        }

    assert rows("table1") == {
        "Baseline": ("Baseline", {}, None),
        "Baseline + EMA": ("Baseline", {}, "mean1"),
        "FFL-S": ("FFL", {}, None),
        **{name: (name, {}, None) for name in ("DML", "CL", "ONE", "OKDDip", "KDCL", "PCL")},
    }
    alone = {"distil_ensemble": False, "peer_teacher": "none"}
    assert rows("table2") == {  # pcl.md, section 5: what each line of Table 2 has of Eq. 2, 3, 4 and 9
        "Backbone": ("Baseline", {}, None),
        "+ L_ce^p": ("PCL", {"ensemble": "none", **alone}, None),
        "+ L_ce^t": ("PCL", alone, None),
        "+ L_pe": ("PCL", {"peer_teacher": "none"}, None),
        "+ L_pm (full)": ("PCL", {}, None),
        "P.E. + mutual distillation": ("PCL", {"peer_teacher": "mutual"}, None),
        "P.E. + traditional mean model": ("PCL", {"peer_teacher": "own_mean"}, None),
        "logit sum + P.M.": ("PCL", {"ensemble": "sum"}, None),
    }
    assert (
        rows("table3")
        == rows("fig4")
        == {
            "ONE-E": ("ONE", {}, "ensemble"),
            "FFL": ("FFL", {}, "ensemble"),
            "OKDDip-E": ("OKDDip", {"leader": False}, "ensemble"),
            "PCL-E": ("PCL", {}, "ensemble"),
        }
    )
    assert {cell.row: cell.jobs[0].peers for cell in table_cells("fig5", PAPER, 1)}["4 peers"] == 4
    taught = [cell.jobs[0].needs for cell in table_cells("table4", PAPER, 1) if cell.row == "KD"]
    assert [(job.options["model"], job.options["method"]) for job in taught if job] == [
        ("resnet110", "Baseline")
    ] * 2


def test_a_runs_time_is_its_steps_and_its_evaluations() -> None:
    jobs = {cell.row: cell.jobs[0] for cell in table_cells("table1", MINI, 1)}
    speed, teacher = Speed(step=0.1, test=2.0, steps=20), Speed(step=0.6, test=9.0, steps=20)
    assert estimate_seconds(jobs["Baseline"], 300, speed, None) == pytest.approx(300 * 20 * 0.1 + 30 * 2.0 * 2)
    assert estimate_seconds(jobs["Baseline"], 15, speed, None) == pytest.approx(
        15 * 20 * 0.1 + 2 * 2.0 * 2
    )  # what is left
    assert estimate_seconds(jobs["PCL"], 300, speed, None) == pytest.approx(300 * 20 * 0.4 + 30 * 2.0 * 2 * 5 / 3)
    assert estimate_seconds(jobs["KD"], 300, speed, teacher) == pytest.approx(
        300 * 20 * (0.1 + 0.2) + 30 * 2.0 * 2
    )
    assert wall_clock([10.0, 20.0, 30.0], 2) == 30.0 and wall_clock([10.0, 30.0, 40.0], 2) == 40.0
    assert [format_duration(t) for t in (12, 600, 7200, 3e5)] == ["12 s", "10 min", "2.0 h", "3.5 days"]


def test_tables_share_their_runs() -> None:
    def name(experiment: str, row: str) -> str:
        return next(cell.jobs[0].name for cell in table_cells(experiment, MINI, 1) if cell.row == row)

    pcl = name("table1", "PCL")
    assert pcl == name("table2", "+ L_pm (full)") == name("table3", "PCL-E") == name("fig5", "3 peers")
    assert len({cell.jobs[0].name for cell in table_cells("table2", MINI, 1)}) == 8
    assert name("table3", "OKDDip-E") != name("table1", "OKDDip")  # its ensemble has no leader


def test_a_name_changes_with_every_option_and_with_the_teacher() -> None:
    job = Job({"method": "KD", "model": "resnet8", "data": "digits", "epochs": 2}, 0)
    changed = Job({**job.options, "optimizer.lr": 0.05}, 0)
    taught = replace(job, needs=changed)
    assert len({job.name, changed.name, taught.name, replace(job, seed=1).name}) == 4
    assert job.name == Job(dict(reversed(job.options.items())), 0).name
    flags = taught.flags("data")
    assert flags[flags.index("--method.teacher") + 1] == changed.name
    assert flags.index("--method") < flags.index("--method.teacher") and flags[-1] == "data"


def test_shards_divide_the_runs_and_keep_teachers_with_their_pupils() -> None:
    jobs = distinct(job for cell in table_cells("table1", MINI, 3) for job in cell.jobs)
    parts = [shard(jobs, i, 4) for i in (1, 2, 3, 4)]
    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in jobs)
    for part in parts:
        names = {job.name for job in part}
        assert all(job.needs is None or job.needs.name in names for job in part)
    order = [job.name for job in jobs]
    assert all(job.needs is None or order.index(job.needs.name) < order.index(job.name) for job in jobs)


def test_costs_are_those_of_the_specification() -> None:
    costs = {cell.row: cell.jobs[0].step_cost() for cell in table_cells("table1", MINI, 1)}
    for row in ("ONE", "CL", "OKDDip", "FFL-S"):
        assert costs[row] == pytest.approx(1.7, abs=0.05)
    assert [costs[row] for row in ("Baseline", "DML", "KDCL", "PCL")] == [1, 3, 3, 4]
    without = next(cell for cell in table_cells("fig5", MINI, 1) if "InAu" in cell.row)
    assert without.jobs[0].step_cost() == pytest.approx(2.2, abs=0.05)


def test_only_selects_by_all_its_words() -> None:
    cells = table_cells("table1", PAPER, 1)
    assert {cell.row for cell in select_cells(cells, "cifar-100, resnet110, pcl")} == {"PCL"}
    assert len(select_cells(cells, "ImageNet")) == 9
    for ten in ("cifar-10", "cifar10"):  # not found in cifar100
        assert {cell.setting.paper_setting[0] for cell in select_cells(cells, f"{ten}; {ten}, pcl,")} == {
            "CIFAR-10"
        }
    assert {cell.jobs[0].options["model"] for cell in select_cells(cells, "resnet")} > {"resnet32", "resnet110"}
    assert {cell.setting.paper_setting[0] for cell in select_cells(cells, "10")} == {"CIFAR-10"}
    with pytest.raises(InputError, match="',' matches nothing"):
        select_cells(cells, ",")
    assert {cell.jobs[0].options["model"] for cell in select_cells(cells, "wrn20_8")} == {"wrn20_8"}


def test_only_takes_a_rows_name_for_that_row_alone() -> None:
    def rows(only: str, experiment: str = "table1") -> list[str]:
        return [cell.row for cell in select_cells(table_cells(experiment, MINI, 1), only)]

    assert rows("CL") == ["CL"] and rows("kd") == ["KD"] and rows("Baseline") == ["Baseline"]
    assert rows("Baseline, 3 views") == ["Baseline, 3 views"] and rows("3 peers", "fig5") == ["3 peers"]
    assert rows("Baseline; ONE;PCL;") == ["Baseline", "ONE", "PCL"]
    assert (
        len(rows("views")) == 1
        and len(rows("resnet8")) == 13
        and rows("PCL", "table2") == rows("pcl", "fig3") + rows("P.M.;P.E.", "table2")
    )


def test_paired_difference_is_scipys() -> None:
    random = np.random.default_rng(0)
    ours = dict(enumerate(random.normal(38, 1, 5)))
    theirs = {seed: value for seed, value in enumerate(random.normal(40, 1, 7)) if seed != 1}
    common = [0, 2, 3, 4]
    difference = paired(ours, theirs)
    assert difference is not None and difference.half_width is not None and difference.count == 4
    a, b = [ours[s] for s in common], [theirs[s] for s in common]
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert difference.mean - difference.half_width == pytest.approx(interval.low)
    assert difference.mean + difference.half_width == pytest.approx(interval.high)
    assert difference.clear == (stats.ttest_rel(a, b).pvalue < 0.05)


def test_one_pair_has_no_interval_and_none_no_difference() -> None:
    difference = paired({0: 3.0}, {0: 1.0, 1: 2.0})
    assert difference is not None and not difference.clear
    assert (difference.mean, difference.half_width) == (2.0, None)
    assert paired({0: 3.0}, {1: 1.0}) is None


@pytest.mark.parametrize("name", ["mini", "mini100", "smoke", "paper"])
def test_every_cell_is_a_recipe(name: str, tmp_path: Path) -> None:
    """The options, methods, networks and data sets of all tables and figures exist under these names."""
    if name == "paper":  # what differs from mini: ImageNet's options, and the networks' names
        cells = [cell for cell in table_cells("table1", PAPER, 1) if "ImageNet" in cell.setting.title]
        models = {setting.options["model"] for settings in PAPER.settings.values() for setting in settings}
        assert models <= networks().keys()
    else:
        cells = [cell for experiment in EXPERIMENTS for cell in table_cells(experiment, PROTOCOLS[name], 1)]
    jobs = distinct(job for cell in cells for job in cell.jobs)
    reproduction = Reproduction("table1", PROTOCOLS[name], tmp_path, 1)
    for job in jobs if name in ("mini", "paper") else jobs[:2]:
        recipe = reproduction.recipe(job)
        assert recipe.method_class.__name__ == job.options["method"] and recipe.epochs == job.epochs
        own = {key.removeprefix("method.") for key in job.options if key.startswith("method.")}
        assert own | ({"teacher"} if job.needs else set()) <= recipe.method_options.keys()
        follows = {name for name in ("ramp_up", "beta") if name in recipe.method_options} - own
        assert all(recipe.method_options[name] is None for name in follows)
