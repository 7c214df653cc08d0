"""Statistics: intervals cover at the numbers of units that are used, pairs and units count once, many tests cost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from pidm_nav.statistics import below_p, equivalence_p, estimate_mean, holm, percentile_interval, resample

UNITS = (3, 5, 10, 20)
EXPERIMENTS = 2000


def coverage(draw, mean: float, units: int) -> float:
    """Return how often the interval of simulated units covers their true mean."""
    estimates = [estimate_mean(draw(units)) for _ in range(EXPERIMENTS)]
    return float(np.mean([each.low <= mean <= each.high for each in estimates]))


@pytest.mark.parametrize("units", UNITS)
def test_intervals_of_normal_scores_cover(units: int) -> None:
    rng = np.random.default_rng(units)
    assert coverage(lambda n: rng.normal(0.5, 0.1, n), 0.5, units) > 0.93


@pytest.mark.parametrize(("units", "least"), [(3, 0.88), (5, 0.87), (10, 0.89), (20, 0.9)])
def test_intervals_of_skewed_scores_near_a_bound_cover_nearly(units: int, least: float) -> None:
    rng = np.random.default_rng(units)
    assert coverage(lambda n: rng.beta(9, 1, n), 0.9, units) > least


@pytest.mark.parametrize("units", UNITS)
def test_many_jobs_of_few_seeds_are_few_units(units: int) -> None:
    """Gains of a seed that share its luck: each job as a unit of its own would claim far too much."""
    rng = np.random.default_rng(units)
    seeds = np.repeat(np.arange(units), 12)
    covered = {"clustered": 0, "pooled": 0}
    for _ in range(EXPERIMENTS):
        gains = rng.normal(0, 0.1, units)[seeds] + rng.normal(0, 0.05, len(seeds))
        for name, clusters in (("clustered", seeds.tolist()), ("pooled", None)):
            low, high = estimate_mean(gains, clusters)[1:3]
            covered[name] += low <= 0 <= high
    assert covered["clustered"] > 0.93 * EXPERIMENTS > 0.6 * EXPERIMENTS > covered["pooled"]


@pytest.mark.parametrize(("units", "least"), [(5, 0.88), (10, 0.92), (20, 0.92)])
def test_bootstrap_intervals_cover(units: int, least: float) -> None:
    rng = np.random.default_rng(units)
    covered = 0
    for _ in range(500):
        low, high = percentile_interval(resample(rng.normal(size=units), rng).mean(axis=1), units)
        covered += low <= 0 <= high
    assert covered / 500 > least


def test_the_test_is_students() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 8)
    found, wanted = estimate_mean(values), ttest_1samp(values, 0)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval()))
    assert found.units == 8


def test_missing_values_equal_units_and_single_ones() -> None:
    assert estimate_mean([0.5, np.nan, 0.7]).units == 2
    assert estimate_mean([1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0, 0.25, 3)  # 2 of the 8 ways to choose three signs
    assert estimate_mean([0.0, 0.0]).p == 1.0
    alone, none = estimate_mean([0.4]), estimate_mean([])
    assert alone.value == 0.4 and all(map(math.isnan, (alone.low, alone.high, alone.p)))
    assert none.units == 0 and math.isnan(none.value)


def test_intervals_end_at_the_bounds() -> None:
    assert estimate_mean([1.0, 1.0, 0.9], bounds=(0, 1)).high == 1.0 < estimate_mean([1.0, 1.0, 0.9]).high


def test_equivalence_needs_evidence_and_not_only_a_lack_of_difference() -> None:
    rng = np.random.default_rng(0)
    close, wide = rng.normal(0, 0.01, 10), rng.normal(0, 0.2, 10)
    assert equivalence_p(close, 0.05) < 0.001 and equivalence_p(wide, 0.05) > 0.05
    assert equivalence_p(close + 0.2, 0.05) > 0.99 and math.isnan(equivalence_p([0.1], 0.05))
    assert equivalence_p([0.0, 0.0, 0.0], 0.05) == 0.125


def test_equivalence_is_claimed_wrongly_in_at_most_five_percent() -> None:
    rng = np.random.default_rng(1)
    claimed = [equivalence_p(rng.normal(0.05, 0.02, 5), 0.05) < 0.05 for _ in range(EXPERIMENTS)]
    assert np.mean(claimed) < 0.065


def test_holm_of_a_known_example() -> None:
    assert holm([0.01, 0.04, math.nan, 0.03]) == pytest.approx([0.03, 0.06, math.nan, 0.06], nan_ok=True)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_lies_between_the_p_and_bonferronis(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= new <= min(1.0, p * len(p_values)) for p, new in zip(p_values, adjusted, strict=True))
    assert [adjusted[i] for i in np.argsort(p_values, kind="stable")] == sorted(adjusted)


def test_infinite_ratios_have_an_interval() -> None:
    assert percentile_interval(np.array([2.0] * 1000 + [np.inf] * 1000), 20) == (2.0, np.inf)
    assert percentile_interval(np.array([np.nan, 2.0]), 20) == (2.0, 2.0)
    assert all(map(math.isnan, percentile_interval(np.array([np.nan]), 20)))


def test_a_mean_at_the_limit_is_rarely_called_lower():
    rng = np.random.default_rng(5)
    at_limit = [below_p(rng.normal(0.05, 0.02, 10), 0.05) < 0.025 for _ in range(EXPERIMENTS)]
    below = [below_p(rng.normal(0.0, 0.02, 10), 0.05) < 0.025 for _ in range(EXPERIMENTS // 10)]
    assert abs(np.mean(at_limit) - 0.025) < 0.01 and np.mean(below) > 0.99
    assert below_p([0.2, 0.21, 0.19], 0.05) > 0.99 and below_p([-0.2, -0.21, -0.19], 0.05) < 0.01
