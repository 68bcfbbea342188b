"""The plan of a comparison: options by method, epochs at equal cost, what fits into a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.comparing import training_options
from coterie.config.options import from_namespace, parser
from coterie.config.parsing import parse
from coterie.errors import InputError
from coterie.experiments.compare import plan_comparison
from coterie.experiments.compare_plan import (
    NOTE,
    START,
    ComparePlan,
    CompareRequest,
    fit_budget,
    make_plan,
    measure_plain,
    note_plan,
    noted_plan,
)
from coterie.experiments.estimate import Speed
from coterie.experiments.job import Job
from coterie.experiments.recipe_job import job_of
from tests.helpers.common import printed, refused

WORDS = ["--model", "resnet8", "--data", "digits", "--data.limit", "5", "--batch", "25"]
TINY = [*WORDS, "--epochs", "20"]


def request(out: Path, methods: str = "Baseline,PCL", words: list[str] = TINY, **options: Any) -> CompareRequest:
    return CompareRequest(out, training_options(methods, words), **options)


@pytest.mark.parametrize(
    "words",
    [
        ["--method", "PCL"],
        ["--method", "KDCL", "--method.temperature", "2", "--mix", "CutMix", "--mix.probability", "0.5"],
        ["--optimizer", "AdamW", "--schedule", "Cosine", "--device", "cpu", "--ema"],
        ["--data", "folder", "--data.root", "photos", "--data.workers", "2", "--data.augment", "[flip]"],
        ["--data", "tests.helpers.report.hostile", "--data.limit", "10", "--class_weights", "balanced"],
        [
            "--method",
            "DML",
            "--peers",
            "resnet8,resnet14",
            "--model_options",
            "{}",
            "--optimizer.nesterov",
            "false",
        ],
    ],
)
def test_a_job_of_a_recipe_is_read_back_as_the_same_recipe(words: list[str]) -> None:
    train = parser()
    recipe = from_namespace(train, parse(train, [*words, "--seed", "3"]))
    job = job_of(recipe)
    assert from_namespace(train, parse(train, job.flags())).config == recipe.config and job.seed == 3


def test_names_of_runs_are_safe_and_say_what_they_are() -> None:
    names = {
        Job({"method": "PCL", "model": model, "data": data}, 1, runtime={"device": "cpu"}).name.rsplit("-", 2)[0]
        for model, data in (("timm:vit_tiny", "my.sets.Photos"), ("nets/own.py:make", "digits"))
    }
    assert names == {"PCL-timm_vit_tiny-my.sets.Photos", "PCL-nets_own.py_make-digits"}
    own = Job({"method": "<KD in x.py>", "model": "<make in train.py>", "data": "<Tensor in torch>"}, 0)
    assert own.name.startswith("KD-make-Tensor-")
    options = {"method": "PCL", "model": "a", "data": "b"}
    assert Job(options, 0, runtime={"device": "cpu"}).name == Job(options, 0).name


def test_options_go_to_the_methods_that_have_them(tmp_path: Path) -> None:
    words = [*WORDS, "--method.temperature", "4", "--method.joint-trunk", "true", "--cut", "layer2"]
    jobs = request(tmp_path, "DML,PCL,Baseline", words).jobs
    assert list(jobs) == ["Baseline", "DML", "PCL"]  # the reference first, else as named
    common = request(tmp_path, words=WORDS).jobs["PCL"].options
    own = {label: {k: v for k, v in job.options.items() if k not in common} for label, job in jobs.items()}
    assert own["Baseline"] == {} and own["DML"] == {"method.temperature": 4.0}
    assert own["PCL"] == {"method.temperature": 4.0, "method.joint_trunk": True, "cut": "layer2"}
    assert list(request(tmp_path, "DML,PCL", [*WORDS, "--peers", "resnet8,resnet14"]).jobs) == ["DML", "PCL"]
    one = request(tmp_path, "Baseline,DML", [*WORDS, "--peers", "resnet14,resnet8"]).jobs["Baseline"]
    assert one.options["model"] == "resnet14" and "peers" not in one.options


def test_equal_cost_gives_cheaper_methods_more_epochs(tmp_path: Path) -> None:
    plan = plan_comparison(request(tmp_path / "out", "Baseline,ONE,PCL", equal_cost=True), 1, 1)
    assert plan.costs["Baseline"] == 1 and plan.costs["PCL"] == pytest.approx(4, abs=0.05)
    assert plan.epochs == {
        "Baseline": round(20 * plan.costs["PCL"]),
        "ONE": round(20 * plan.costs["PCL"] / plan.costs["ONE"]),
        "PCL": 20,
    }
    assert not (tmp_path / "out").exists()  # a plan is noted when it is carried out


@pytest.mark.parametrize(
    ("limit", "plan"),
    [
        (1000.0, (5, 100)),
        (499.0, (4, 100)),
        (300.0, (3, 100)),
        (299.0, (3, 99)),
        (30.0, (3, 10)),
        (29.0, (2, 10)),
        (10.0, (1, 10)),
        (9.0, None),
    ],
)
def test_a_budget_gives_up_seeds_beyond_three_then_epochs_then_seeds(
    limit: float, plan: tuple[int, int] | None
) -> None:
    assert fit_budget(5, 100, limit, lambda seeds, epochs: float(seeds * epochs)) == plan


def test_a_budget_is_planned_from_the_speed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = Speed(step=1.0, test=2.0, steps=10)
    comparison = request(tmp_path / "out", seeds=3, budget="40min")
    plan = make_plan(comparison, 1, 1, lambda *_: speed)

    def seconds(epochs: int) -> float:
        training = 10 * epochs * (1 + plan.costs["PCL"])
        return 3 * (2 * START + training + epochs * 2.0 * (1 + 2 * (2 / 3 + 3 * 1 / 3)))

    epochs = plan.epochs["PCL"]
    assert plan.seeds == 3 and plan.epochs["Baseline"] == epochs < 20
    assert seconds(epochs) <= 0.9 * 2400 < seconds(epochs + 1)
    note_plan(comparison, plan)
    monkeypatch.setattr("coterie.experiments.compare.measure_plain", lambda *_: pytest.fail("measured again"))
    again = plan_comparison(request(tmp_path / "out", seeds=3, budget="40min"), 1, 1)
    assert (again.seeds, again.epochs) == (plan.seeds, plan.epochs)
    assert noted_plan(request(tmp_path / "out", seeds=3, budget="50min")) is None  # another plan
    (tmp_path / "out" / NOTE).write_text("{}")
    with pytest.raises(InputError, match="compare.json is damaged"):
        noted_plan(comparison)


def test_a_budget_by_a_measured_step(tmp_path: Path) -> None:
    comparison = request(tmp_path / "out", words=[*WORDS, "--epochs", "100000"], seeds=5, budget="20h")
    assert measure_plain(comparison, 1).steps == 2
    plan = plan_comparison(comparison, 2, 1)
    assert plan.speed is not None and isinstance(plan, ComparePlan)
    assert 1 <= plan.seeds <= 5 and 10000 <= plan.epochs["PCL"] <= 100000


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text, _ = printed(
        "compare", *TINY, "--methods", "Baseline,KDCL,PCL", "--out", out, "--dry-run", "--processes", 2
    )
    assert "Baseline, KDCL, PCL; 3 seeds of 20 epochs." in text and not out.exists()
    assert "9 runs to train" in text and "with 2 at once" in text
    cells = next(line for line in text.splitlines() if "KDCL" in line and "│" in line).split("│")
    assert [cell.strip() for cell in cells[1:6]] == ["KDCL", "3", "0", "20", "3.0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds must be at least 1, not 0."),
        (["--methods", "Baseline,PLC"], "There is no method 'PLC'; did you mean 'PCL'?"),
        (["--methods", "Baseline,my.Method"], "The method my.Method cannot be imported: No module named 'my'."),
        (["--methods", "PCL"], "--methods must name at least two methods"),
        (["--methods", "PCL,PCL"], "--methods names PCL twice."),
        (["--budget", "1s"], "--budget 1s is too little: one seed of each method for 2 epochs needs about"),
        (["--budget", "soon"], "--budget is a time such as 30s, 10min or 1h, not 'soon'."),
        (["--method.temprature", "3"], "There is no option '--method.temprature'; did you mean '--method.temper"),
        (["--method", "PCL"], "takes --methods, not --method."),
        (["--seed", "3"], "takes --seeds, not --seed."),
        (["--optimzer", "SGD"], "There is no option '--optimzer'; did you mean '--optimizer'?"),
        (["--batch", "5000"], "A batch of 5000 is larger than the 50 training images: lower --batch."),
        (["--methods", "MCL,PCL", "--mix", "CutMix"], "MCL compares classes and cannot train on mixed images"),
        (["--cut", "layer9"], "layer9"),
        (["--processes", "0"], "--processes and --threads must be at least 1."),
    ],
)
def test_bad_input_gets_one_sentence_before_anything_starts(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    assert words in refused("compare", *TINY, "--out", "out", *arguments, cwd=tmp_path)
    assert not any(tmp_path.iterdir())


def test_an_out_is_needed_and_must_be_free(tmp_path: Path) -> None:
    assert "--out is missing" in refused("compare", *TINY)
    (tmp_path / "chapter1.txt").write_text("precious")
    assert "not empty and holds no results" in refused("compare", *TINY, "--out", tmp_path)
    assert "is a file" in refused("compare", *TINY, "--out", tmp_path / "chapter1.txt")


def test_the_note_says_what_was_asked_and_planned(tmp_path: Path) -> None:
    comparison = request(tmp_path / "out")
    note_plan(comparison, ComparePlan(3, {"Baseline": 20, "PCL": 20}, {"Baseline": 1.0, "PCL": 4.0}))
    note = json.loads((tmp_path / "out" / NOTE).read_text())
    assert note["seeds"] == 3 and note["request"]["methods"]["PCL"]["data.limit"] == 5
    assert noted_plan(comparison) == ComparePlan(3, {"Baseline": 20, "PCL": 20}, {"Baseline": 1.0, "PCL": 4.0})
