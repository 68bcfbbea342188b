"""The best record: the lowest error, then the lower NLL, then the earlier; raw or averaged weights of peer 1."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from coterie.runs.reader import Result
from coterie.runs.selection import best_record, evaluations_since_best, patience_is_over


def record(epoch: int, deployed: str = "mean1", **scores: tuple[float, float]) -> dict[str, Any]:
    predictors = {name: {"error": error, "nll": nll} for name, (error, nll) in scores.items()}
    return {"epoch": epoch, "deployed": deployed, "split": "val", "predictors": predictors}


def test_by_error_then_nll_then_the_earlier() -> None:
    records = [
        record(0, mean1=(9.0, 0.1), peer1=(8.0, 0.9)),
        record(1, mean1=(7.0, 0.5), peer1=(9.0, 0.1)),
        record(2, mean1=(8.0, 0.1), peer1=(7.0, 0.4)),  # the same error, a lower NLL
        record(3, mean1=(7.0, 0.4), peer1=(7.0, 0.4)),  # neither: the earlier stays
        record(4, mean1=(7.5, 0.1), peer1=(7.5, 0.1)),
    ]
    best = best_record(records)
    assert (best["epoch"], best["deployed"]) == (2, "peer1") and records[2]["deployed"] == "mean1"
    assert evaluations_since_best(records) == 2
    assert [patience_is_over(records, patience) for patience in (1, 2, 3, None)] == [True, True, False, False]
    assert best_record(records[:2])["deployed"] == "mean1"
    assert best_record(records[3:])["deployed"] == "mean1"  # of two that are equal, the method's own


@pytest.mark.parametrize("own", ["peer1", "mean1"])
def test_never_another_peer_nor_the_ensemble(own: str) -> None:
    scores = {"peer1": (9.0, 1.0), "peer2": (1.0, 1.0), "mean2": (1.0, 1.0), "ensemble": (0.0, 0.0)}
    if own == "mean1":
        scores["mean1"] = (8.0, 1.0)
    assert best_record([record(0, own, **scores)])["deployed"] == own


def test_scores_that_are_no_numbers_are_never_better() -> None:
    bad = (float("nan"), float("nan"))
    records = [record(0, mean1=bad), record(1, mean1=(90.0, 2.0)), record(2, mean1=(5.0, float("nan")))]
    assert best_record(records)["epoch"] == 1


def test_as_sorting_all_candidates_by_hand() -> None:
    draw = random.Random(0)
    for _ in range(50):
        records = [
            record(
                epoch,
                **{name: (float(draw.randrange(3)), float(draw.randrange(3))) for name in ("mean1", "peer1")},
            )
            for epoch in range(8)
        ]
        entries = [
            (*r["predictors"][name].values(), r["epoch"], name) for r, name in product(records, ("mean1", "peer1"))
        ]
        *_, epoch, name = min(entries)  # "mean1" < "peer1" too
        best = best_record(records)
        assert (best["epoch"], best["deployed"]) == (epoch, name)
        assert evaluations_since_best(records) == 7 - epoch


def test_a_run_is_finished_when_its_patience_is_over() -> None:
    errors = [9.0, 5.0, 6.0, 6.0]
    records = [record(epoch, mean1=(error, 1.0)) for epoch, error in enumerate(errors)]
    config = {"epochs": 300, "select": "best", "patience": 2, "model": "resnet8", "data": "digits"}
    run = Result(Path("run"), config, records)
    assert run.finished and run.stopped_early and run.deployed_record["epoch"] == 1
    assert run.outcome == (
        "stopped after epoch 4 of 300: no better held-out error in 2 evaluations; "
        "mean1 of epoch 2 selected on held-out images"
    )
    assert run.setting == "resnet8 on digits, selected on held-out images"
    assert not Result(Path("run"), config, records[:3]).finished
    for other in ({"select": "last"}, {"patience": None}, {"patience": 3}):
        assert not Result(Path("run"), {**config, **other}, records).finished
    older = Result(Path("run"), {"epochs": 4, "model": "resnet8", "data": "digits"}, records)
    assert older.finished and older.deployed_record is records[-1] and older.outcome == ""
    assert older.setting == "resnet8 on digits"
