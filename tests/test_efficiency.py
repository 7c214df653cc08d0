"""Efficiency ratios, checkpoints and intervals on hand-made curves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import ttest_ind, ttest_rel

from pidm_nav.experiments.curves import Curve, summarize
from pidm_nav.experiments.efficiency import (
    average_ratio,
    demos_needed,
    efficiency_ratio,
    efficiency_table,
    paired_tests,
    task_maximum,
)

PAPER_SIZES = (1, 2, 5, 10, 20, 30, 40, 50)
NEVER = np.nan


def flat(means, sizes=PAPER_SIZES, agent="bc", task="maze", demos_from="human", seeds=3):
    """A curve whose seeds all score the mean, at one checkpoint."""
    scores = np.repeat(np.asarray(means, dtype=float)[:, None, None], seeds, axis=1)
    return Curve(task, agent, demos_from, sizes, scores)


def noisy(means, rng, spread=0.05, **kwargs):
    curve = flat(means, **kwargs)
    scores = curve.scores + rng.normal(0, spread, curve.scores.shape)
    return Curve(curve.task, curve.agent, curve.demos_from, curve.sizes, scores)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# Curves


def test_the_best_checkpoint_is_chosen_by_the_mean_over_seeds_for_each_size():
    scores = np.array(
        [
            [[0.1, 0.5, 0.4], [0.3, 0.1, 0.4]],  # means .2 .3 .4: no seed has its best score at the last one
            [[0.9, 0.5, 0.2], [0.7, 0.5, 0.0]],  # means .8 .5 .1
        ]
    )
    curve = Curve("maze", "bc", "human", (1, 5), scores)
    assert curve.best.tolist() == [2, 0]
    np.testing.assert_allclose(curve.seed_scores, [[0.4, 0.4], [0.9, 0.7]])
    np.testing.assert_allclose(curve.mean, [0.4, 0.8])
    np.testing.assert_allclose(curve.last().mean, [0.4, 0.1])
    np.testing.assert_allclose(curve.std, [0, np.sqrt(0.02)], atol=1e-12)


def test_missing_jobs_are_left_out_of_means_and_an_empty_cell_is_nan():
    cells = {(1, 0): [0.2, 0.4], (1, 1): [0.4, 0.8], (5, 1): [0.6]}
    curve = Curve.from_cells("maze", "bc", "human", cells)
    assert curve.sizes == (1, 5) and curve.scores.shape == (2, 2, 2)
    np.testing.assert_allclose(curve.mean, [0.6, 0.6])
    np.testing.assert_allclose(curve.last().mean, [0.6, np.nan])
    assert np.isnan(curve.std[1])
    empty = Curve("maze", "bc", "human", (1, 5), np.array([[[0.5]], [[np.nan]]]))
    assert empty.best.tolist() == [0, -1]
    np.testing.assert_allclose(empty.mean, [0.5, np.nan])


def test_bootstrapped_curves_choose_the_checkpoint_again_and_skip_missing_seeds(rng):
    scores = np.array([[[0.0, 1.0], [1.0, 0.0], [np.nan, np.nan]]])
    draws = np.array([[0, 1, 2], [0, 0, 2], [1, 1, 7], [2, 2, 7]])
    means = Curve("maze", "bc", "human", (1,), scores).bootstrap(draws)
    np.testing.assert_array_equal(means[:, 0], [0.5, 1, 1, np.nan])  # one seed drawn twice: 1 at its best checkpoint


def test_a_summary_row_of_a_size(rng):
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0])[None, :, None]
    (row,) = summarize(Curve("maze", "bc", "human", (5,), scores), rng)
    assert (row["demos"], row["seeds"], row["checkpoint"]) == (5, 8, 0)
    assert row["mean"] == pytest.approx(0.475) and row["iqm"] == pytest.approx(0.45)
    assert row["std"] == pytest.approx(np.std(scores, ddof=1))
    assert row["low"] < row["mean"] < row["high"] and row["iqm_low"] < row["iqm"] < row["iqm_high"]


def test_a_summary_of_one_seed_and_of_none(rng):
    curve = Curve("maze", "bc", "human", (1, 2), np.array([[[0.5]], [[np.nan]]]))
    one, none = summarize(curve, rng)
    assert one["mean"] == 0.5 and np.isnan([one["low"], one["high"], one["std"]]).all()
    assert none["seeds"] == 0 and np.isnan([none["mean"], none["low"], none["iqm"], none["iqm_high"]]).all()


# n(A, c) and eta(c)


@pytest.mark.parametrize(
    ("curve", "level", "demos"),
    [
        ([0.1, 0.5, 0.9, 1.0], 0.9, 5),  # reaching exactly counts
        ([0.1, 0.5, 0.8, 1.0], 0.9, 10),
        ([0.95, 0.1, 0.1, 0.1], 0.9, 1),  # falls again later: it has been reached
        ([0.1, 0.95, 0.2, 1.0], 0.9, 2),
        ([0.1, 0.2, 0.3, 0.4], 0.9, NEVER),
        ([np.nan, 0.95, 1.0, 1.0], 0.9, 2),  # a missing cell has reached nothing
        ([np.nan] * 4, 0.9, NEVER),
        ([0.5] * 4, 0.5, 1),  # ties: the smallest
    ],
)
def test_demos_needed_is_the_first_measured_size_at_the_level(curve, level, demos):
    np.testing.assert_equal(float(demos_needed((1, 2, 5, 10), curve, level)), demos)


def test_a_mean_that_is_the_level_but_for_rounding_has_reached_it():
    mean = np.mean([0.7, 0.8, 0.9]) - 1e-16
    assert mean < 0.8 and demos_needed((3,), [mean], 0.8) == 3


@settings(deadline=None)
@given(
    curve=hnp.arrays(float, 8, elements=st.floats(0, 1)),
    low=st.floats(0.01, 1),
    high=st.floats(0.01, 1),
)
def test_a_higher_level_never_needs_fewer_demonstrations(curve, low, high):
    low, high = sorted((low, high))
    needed = np.nan_to_num([float(demos_needed(PAPER_SIZES, curve, level)) for level in (low, high)], nan=np.inf)
    assert needed[0] <= needed[1]
    if np.isfinite(needed[1]):
        assert curve[PAPER_SIZES.index(int(needed[1]))] >= high - 1e-9


def test_the_papers_definition_on_curves_like_its_zigzag(rng):
    # Maximum .98 is PIDM's; levels .784, .882, .931 are reached by BC at 10, 20, 40 and by PIDM at 5, 10, 30.
    bc = flat([0.2, 0.3, 0.6, 0.79, 0.90, 0.92, 0.97, 0.96])
    pidm = flat([0.3, 0.5, 0.8, 0.89, 0.92, 0.94, 0.98, 0.98], agent="pidm")
    assert task_maximum([bc, pidm]) == pytest.approx(0.98)
    ratios = [efficiency_ratio(pidm, bc, level, rng=rng) for level in (0.8, 0.9, 0.95)]
    assert [str(ratio) for ratio in ratios] == ["2", "2", "1.33"]  # the paper's column
    assert [(r.demos_baseline, r.demos_agent) for r in ratios] == [(10, 5), (20, 10), (40, 30)]
    assert ratios[2].interval == (pytest.approx(4 / 3), pytest.approx(4 / 3))  # seeds without spread


def test_the_maximum_is_the_tasks_and_not_the_agents_own(rng):
    bc = flat([0.40, 0.45], sizes=(1, 50))  # 90% of its own maximum at once, never 90% of the task's
    pidm = flat([0.80, 1.00], sizes=(1, 50), agent="pidm")
    assert efficiency_ratio(pidm, bc, 0.8, rng=rng).bound == ">"
    third = flat([0.9, 0.9], sizes=(1, 50), agent="retrieval-bc")
    assert efficiency_ratio(bc, third, 0.5, rng=rng).demos_agent == 50  # of .9: level .45
    assert np.isnan(efficiency_ratio(bc, third, 0.5, rng=rng, peers=[pidm]).demos_agent)  # of 1.0: level .5


def test_a_level_the_baseline_never_reaches_gives_a_lower_bound(rng):
    bc, pidm = flat([0.1, 0.2, 0.3], sizes=(1, 5, 50)), flat([0.5, 1.0, 1.0], sizes=(1, 5, 50), agent="pidm")
    ratio = efficiency_ratio(pidm, bc, 0.9, rng=rng)
    assert (ratio.bound, ratio.value, str(ratio)) == (">", 10, "more than 10")
    assert np.isnan(ratio.demos_baseline) and ratio.demos_agent == 5
    assert ratio.interval == (np.inf, np.inf)


def test_a_level_the_agent_never_reaches_gives_an_upper_bound(rng):
    bc, pidm = flat([0.9, 1.0], sizes=(5, 50)), flat([0.1, 0.2], sizes=(5, 50), agent="pidm")
    ratio = efficiency_ratio(pidm, bc, 0.9, rng=rng)
    assert (ratio.bound, str(ratio), ratio.interval) == ("<", "less than 0.1", (0, 0))


def test_a_level_nobody_reaches_is_said_so(rng):
    bc, pidm = flat([0.1], sizes=(5,)), flat([0.2], sizes=(5,), agent="pidm")
    ratio = efficiency_ratio(pidm, bc, 0.9, rng=rng, peers=[flat([1.0], sizes=(5,), agent="retrieval-bc")])
    assert (ratio.bound, str(ratio)) == ("?", "not reached") and np.isnan([ratio.value, *ratio.interval]).all()


def test_an_agent_against_itself_is_one(rng):
    curve = noisy([0.1, 0.4, 0.8, 0.99], rng, sizes=(1, 5, 10, 50), seeds=8)
    ratio = efficiency_ratio(curve, curve, 0.9, rng=rng)
    assert (ratio.value, ratio.interval) == (1, (1, 1))


def test_the_interval_holds_the_ratio_and_narrows_with_seeds(rng):
    # PIDM is at 88% of the maximum with 5 demonstrations: with few seeds it may seem to reach 90% there.
    means_bc, means_pidm = [0.2, 0.4, 0.6, 0.8, 1.0], [0.4, 0.7, 0.88, 0.97, 1.0]
    widths = []
    for seeds in (5, 500):
        curves = [
            noisy(m, rng, sizes=(1, 2, 5, 10, 20), seeds=seeds, agent=a)
            for m, a in ((means_pidm, "pidm"), (means_bc, "bc"))
        ]
        ratio = efficiency_ratio(*curves, 0.9, rng=rng)
        low, high = ratio.interval
        assert low <= ratio.value <= high
        widths.append(high - low)
    assert widths[0] > widths[1] == 0


def test_the_bootstrap_is_reproducible():
    curves = [noisy([0.5, 0.9], np.random.default_rng(i), sizes=(1, 5), agent=a) for i, a in enumerate(("a", "b"))]
    first, second = (efficiency_ratio(*curves, 0.9, rng=np.random.default_rng(3)).replicates for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_average_is_arithmetic_as_in_the_papers_table(rng):
    def ratio(n_agent, n_baseline):
        sizes = (1, 2, 5, 10, 20, 30, 40, 50)
        agent, baseline = (
            flat([float(s >= n) for s in sizes], agent=a) for n, a in ((n_agent, "p"), (n_baseline, "b"))
        )
        return efficiency_ratio(agent, baseline, 0.9, rng=rng)

    exact = [
        ratio(5, 20),
        ratio(5, 10),
        ratio(10, 40),
        ratio(5, 20),
    ]  # 4, 2, 4, 4: the paper's row, average 3.5
    assert str(average_ratio(exact)) == "3.5" and average_ratio(exact).interval == (3.5, 3.5)
    bounded = average_ratio([*exact, ratio(1, 99)])  # the baseline never gets there: more than 50
    assert bounded.bound == ">" and bounded.value == pytest.approx((14 + 50) / 5)


def test_the_table_pairs_tasks_and_compares_demonstrations_too(rng):
    curves = [
        flat([0.5, 1.0], sizes=(1, 10), agent="bc", task="maze"),
        flat([1.0, 1.0], sizes=(1, 10), agent="pidm", task="maze"),
        flat([1.0, 1.0], sizes=(1, 10), agent="pidm", task="maze", demos_from="astar"),
        flat([0.2, 1.0], sizes=(1, 10), agent="bc", task="zigzag"),
        flat([0.2, 1.0], sizes=(1, 10), agent="pidm", task="zigzag"),
        flat([0.2, 1.0], sizes=(1, 10), agent="bc", task="four-room"),  # no PIDM there: left out
    ]
    table = efficiency_table(curves, ("pidm", "human"), ("bc", "human"), rng=rng)
    assert [(r.task, r.value) for r in table if r.level == 0.9] == [("maze", 10), ("zigzag", 1), ("average", 5.5)]
    assert (table[0].agent, table[0].baseline) == ("pidm (human)", "bc (human)")
    planner = efficiency_table(curves, ("pidm", "astar"), ("pidm", "human"), rng=rng)
    assert [(r.task, r.level, r.value) for r in planner] == [
        (task, level, 1) for level in (0.8, 0.9, 0.95) for task in ("maze", "average")
    ]
    assert efficiency_table(curves, ("pidm", "nowhere"), ("bc", "human"), rng=rng) == []


# The paired test


def test_the_test_is_paired_by_seed_and_uses_common_sizes_and_seeds(rng):
    luck = rng.normal(0, 0.3, 12)  # of each seed, for both agents
    bc = noisy([0.3, 0.5, 0.9], rng, sizes=(1, 5, 10), seeds=12, spread=0.01)
    pidm = noisy([0.6, 1.0], rng, sizes=(5, 10), seeds=7, spread=0.01, agent="pidm")
    bc, pidm = (replace(curve, scores=curve.scores + luck[None, : curve.scores.shape[1], None]) for curve in (bc, pidm))
    rows = paired_tests(pidm, bc)
    assert [(row["demos"], row["seeds"]) for row in rows] == [(5, 7), (10, 7)]
    a, b = pidm.scores[0, :, 0], bc.scores[1, :7, 0]
    assert rows[0]["p"] == pytest.approx(ttest_rel(a, b).pvalue) and rows[0]["p"] < 1e-4 < ttest_ind(a, b).pvalue
    assert rows[0]["low"] < 0.1 < rows[0]["high"] < 0.2


def test_seeds_are_matched_by_their_number(rng):
    scores = rng.normal(0.5, 0.1, (1, 4, 1))
    one = Curve("maze", "bc", "human", (5,), scores, (0, 1, 2, 3))
    other = Curve("maze", "pidm", "human", (5,), scores[:, ::-1] + 0.1, (3, 2, 1, 0))
    assert paired_tests(other, one)[0]["low"] == pytest.approx(0.1)


def test_a_test_without_spread_or_without_seeds():
    same, better = flat([0.5], sizes=(5,)), flat([0.7], sizes=(5,), agent="pidm")
    seeds = same.scores.shape[1]
    assert paired_tests(same, same)[0]["p"] == 1 and paired_tests(better, same)[0]["p"] == 2 / 2**seeds
    alone = flat([0.7], sizes=(5,), seeds=1)
    assert np.isnan(paired_tests(alone, same)[0]["p"]) and paired_tests(alone, same)[0]["difference"] > 0
