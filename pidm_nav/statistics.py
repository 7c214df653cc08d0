"""Intervals and tests over independent units: training seeds in sweeps, episodes in the evaluation of one agent.

Values of one unit are averaged first. Gains of one training seed on several tasks and numbers of demonstrations share
draws, weights and batches, so five seeds are five units, however many jobs they have.

Coverage of the nominal 95% interval of the mean in 20,000 simulated experiments each, for normal scores, for scores
near a bound (beta distribution, mean 0.9, skewness -1.5), and for units that fail completely with probability 0.1:

| units | normal | near 1 | 0 or 1 |
|-------|--------|--------|--------|
|     3 |    95% |    90% |    27% |
|     5 |    95% |    90% |    40% |
|    10 |    95% |    92% |    65% |
|    20 |    95% |    93% |    88% |
|    50 |    95% |    94% |    88% |

A few units that all succeed have no variance and give an interval of width 0, which says nothing about rare failures.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
REPETITIONS = 2000  # of every bootstrap
EQUAL = 1e-12  # smaller relative differences between units are rounding errors


class Mean(NamedTuple):
    """Mean over independent units with its 95% interval and the p-value of the two-sided test that it is 0."""

    value: float
    low: float
    high: float
    p: float
    units: int


def estimate_mean(
    values: ArrayLike, units: Sequence[Hashable] | None = None, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Mean:
    """Return the mean of values (N,) with Student's t interval and test over their units.

    Args:
        values: scores or paired differences; nan if missing.
        units: unit of each value, such as its training seed. Default: each value is a unit.
        bounds: lowest and highest possible mean, which clip the interval.
    """
    from scipy.special import stdtrit

    means = _unit_means(values, units)
    if not len(means):
        return Mean(math.nan, math.nan, math.nan, math.nan, 0)
    value, error = float(means.mean()), _standard_error(means)
    width = 0.0 if error == 0 else float(stdtrit(len(means) - 1, 0.975)) * error if len(means) > 1 else math.nan
    low, high = np.clip([value - width, value + width], *bounds).tolist()
    return Mean(value, low, high, 2 * _tail(abs(value), error, len(means)), len(means))


def interval_text(low: float, high: float, form: str = ".3f") -> str:
    """Return an interval as text in parentheses after a space; nothing if it is undefined."""
    return "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"


def below_p(values: ArrayLike, limit: float, units: Sequence[Hashable] | None = None) -> float:
    """Return the p-value of the one-sided t-test that the mean is below a limit; with a margin, of non-inferiority."""
    means = _unit_means(values, units)
    if not len(means):
        return math.nan
    return _tail(limit - float(means.mean()), _standard_error(means), len(means))


def equivalence_p(values: ArrayLike, margin: float, units: Sequence[Hashable] | None = None) -> float:
    """Return the p-value of the two one-sided t-tests (TOST) that the mean of paired differences is within +-margin."""
    return max(below_p(values, margin, units), below_p(-np.asarray(values, dtype=np.float64), margin, units))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction; nan counts as no test."""
    adjusted, highest = list(map(float, p_values)), 0.0
    known = [i for i in np.argsort(adjusted).tolist() if not math.isnan(adjusted[i])]
    for rank, i in enumerate(known):
        highest = adjusted[i] = min(1.0, max(highest, (len(known) - rank) * adjusted[i]))
    return adjusted


def resample(values: Floats, rng: np.random.Generator) -> Floats:
    """Resample rows with replacement: (REPETITIONS, ...values.shape)."""
    return values[rng.integers(len(values), size=(REPETITIONS, len(values)))]


def percentile_interval(replicates: Floats, units: int) -> tuple[float, float]:
    """Return the 95% bootstrap interval from replicates, which may be infinite; nan replicates are left out.

    The percentiles are widened as Student's t is wider than the normal distribution (Hesterberg's expanded percentile
    interval), because plain percentiles are too narrow for few units. Below five units even the extremes are.
    """
    from scipy.special import ndtr, stdtrit

    known = replicates[~np.isnan(replicates)]
    if not len(known) or units < 2:
        return math.nan, math.nan
    tail = float(ndtr(-math.sqrt(units / (units - 1)) * stdtrit(units - 1, 0.975)))
    low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")  # replicates: infinity has no average
    return float(low), float(high)


def _unit_means(values: ArrayLike, units: Sequence[Hashable] | None) -> Floats:
    """Return the mean of the values of each unit."""
    array = np.asarray(values, dtype=np.float64)
    if units is None:
        return array[~np.isnan(array)]
    groups: dict[Hashable, list[float]] = {}
    for value, unit in zip(array.tolist(), units, strict=True):
        groups.setdefault(unit, []).extend([] if math.isnan(value) else [value])
    return np.array([sum(group) / len(group) for group in groups.values() if group])


def _standard_error(means: Floats) -> float:
    """Return the standard error of the mean: 0 if all units are equal, nan for a single unit."""
    if len(means) < 2:
        return math.nan
    if np.ptp(means) <= EQUAL * np.abs(means).max():
        return 0.0
    return float(means.std(ddof=1) / math.sqrt(len(means)))


def _tail(distance: float, error: float, units: int) -> float:
    """Return the one-sided p-value of a mean this far beyond a limit; without variance, that of the sign test."""
    from scipy.special import stdtr

    if math.isnan(error):
        return math.nan
    if error == 0:
        return 0.5 if distance == 0 else 0.5**units if distance > 0 else 1.0
    return float(stdtr(units - 1, -distance / error))
