"""The sign-flip test, Holm's adjustment and paired differences against independent computations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from coterie.metrics.seeds import holm_adjusted, paired_differences, seeds_won, sign_flip_p


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
