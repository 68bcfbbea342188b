"""The verdict of a comparison: which differences are clear, which are not, and how many seeds would tell."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import mean, stdev

import pytest
from scipy.stats import t

from coterie.experiments.verdict import MethodResult, chance_sentence, verdict
from coterie.metrics.seeds import seeds_needed

BASE = {0: 10.0, 1: 12.0, 2: 11.0}


def result(label: str, *differences: float, cost: float | None = 2.0) -> MethodResult:
    """A method with these differences to a reference of three seeds."""
    errors = {seed: BASE[seed] + difference for seed, difference in enumerate(differences)}
    return MethodResult(label, errors, BASE, cost)


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def test_a_clear_gain_is_told_with_its_interval_and_its_price() -> None:
    differences = (-2.0, -2.2, -1.8)
    half = t.ppf(0.975, 2) * stdev(differences) / math.sqrt(3)
    first, second = sentences(verdict("Baseline", [result("PCL", *differences, cost=3.94)], "test images"))
    assert first == (
        f"PCL is clearly better than Baseline on the test images: 2.00 ± {half:.2f} points fewer errors over 3 "
        "seeds (95 % interval), for 3.9 times the training time."
    )
    assert second == "It errs less with 3 of 3 seeds."


def test_of_several_labels_an_image_it_tells_map() -> None:
    better, worse = (
        replace(result("PCL", sign * 2.0, sign * 2.2, sign * 1.8), several_labels=True) for sign in (-1, 1)
    )
    first, second = sentences(verdict("Baseline", [better], "test images"))
    assert "2.00 ± 0.50 points more mAP over 3 seeds" in first and second == "Its mAP is higher with 3 of 3 seeds."
    first, second = sentences(verdict("Baseline", [worse], "test images"))
    assert "2.00 ± 0.50 points more mAP than PCL over 3 seeds" in first
    assert second == "Its mAP is higher than PCL's with 3 of 3 seeds."


def test_of_several_the_lowest_error_wins_and_the_others_are_named() -> None:
    results = [result("ONE", -1.0, -1.1, -0.9), result("KDCL", -2.0, -2.1, -1.9), result("DML", 1.0, 1.1, 0.9)]
    first, second = sentences(verdict("Baseline", results, "held-out images"))
    assert first.startswith("KDCL is clearly better than Baseline on the held-out images: 2.00 ± 0.25 points")
    assert second == "ONE is clearly better than Baseline too; DML is clearly worse than Baseline."


def test_an_unclear_difference_says_how_many_seeds_it_would_take() -> None:
    differences = (-1.0, 0.4, -1.2)
    count = next(
        n
        for n in range(2, 1000)
        if t.ppf(0.975, n - 1) * stdev(differences) / math.sqrt(n) < abs(mean(differences))
    )
    results = [result("PCL", *differences), result("DML", 0.5, -0.5, 0.01)]
    first, second = sentences(verdict("Baseline", results, "test images"))
    assert first == (
        "Nothing can be said yet: over 3 seeds no method is clearly better than Baseline on the test images."
    )
    assert 3 < count < 50 and second == (
        f"To see a difference as large as now takes about {count} seeds for PCL (-0.60 points) and more than 50 "
        "seeds for DML (+0.00 points)."
    )


def test_equal_errors_ask_for_no_seeds() -> None:
    """No number of seeds shows a difference of nothing."""
    results = [result("PCL", 0.0, 0.0, 0.0), result("DML", 0.5, -0.5, 0.01)]
    first, second = sentences(verdict("Baseline", results, "test images"))
    assert first.startswith("Nothing can be said yet: over 3 seeds")
    assert second == (
        "To see a difference as large as now takes more than 50 seeds for DML (+0.00 points); PCL has the error "
        "of Baseline with every seed."
    )
    _, second = sentences(verdict("Baseline", results[:1], "test images"))
    assert second == "PCL has the error of Baseline with every seed."


def test_a_reference_that_is_clearly_better_is_told_too() -> None:
    first, second = sentences(verdict("Baseline", [result("PCL", 2.0, 2.2, 1.8)], "test images"))
    assert first.startswith(
        "Baseline is clearly better than PCL on the test images: 2.00 ± 0.50 points fewer errors"
    )
    assert "than PCL over 3 seeds" in first and second == "It errs less than PCL with 3 of 3 seeds."


def test_one_seed_says_nothing_about_chance() -> None:
    text = verdict("Baseline", [result("PCL", -3.0), result("DML", 1.0)], "test images")
    first, second = sentences(text)
    assert first == (
        "One seed says nothing about chance: with it PCL made 3.00 points fewer errors than Baseline on the test "
        "images."
    )
    assert second.startswith("Ask for three seeds or more")


def test_two_seeds_are_never_clear_of_chance() -> None:
    """However small the spread: with two seeds it is hardly known."""
    two = result("PCL", -3.0, -3.0)
    assert two.difference is not None and two.difference.half_width == 0 and not two.clear
    first, second = sentences(verdict("Baseline", [two], "test images"))
    assert first.startswith("Nothing can be said yet: over 2 seeds no method is clearly better than Baseline")
    assert "about 3 seeds for PCL (-3.00 points)" in second
    assert result("PCL", -3.0, -3.0, -3.0).clear


def test_a_method_that_only_guesses_is_named() -> None:
    guessing = replace(result("PCL", -1.0, -1.0, -1.0), at_chance=True)
    assert chance_sentence([result("ONE", 0.0), guessing]) == " No better than guessing: PCL (10.00 %)."
    assert chance_sentence([result("ONE", 0.0)]) == ""


def test_what_has_no_finished_run_is_told() -> None:
    assert verdict("Baseline", [result("PCL")], "test images").startswith("Nothing can be said yet: no seed")
    text = verdict("Baseline", [result("PCL", -2.0, -2.1, -1.9), result("DML")], "test images")
    assert text.endswith("DML has no finished run yet.") and len(sentences(text)) == 2


@pytest.mark.parametrize(
    ("differences", "count"), [((-1.0, -1.0), 3), ((0.0, 0.0), None), ((1.0,), None), ((), None)]
)
def test_seeds_needed_at_the_edges(differences: tuple[float, ...], count: int | None) -> None:
    assert seeds_needed(differences) == count
