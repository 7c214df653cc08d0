"""Common parts of the problems: the terms of the gap, measured values, and samples needed for an error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pair = tuple[float, float]
"""A value of BC and of the IDM."""
GROUPS = 20  # of datasets, for the jackknife


class GapTerms(NamedTuple):
    """Corollary 1: the four parts of EPE(BC) - EPE(IDM; approximate predictor) of learned estimators."""

    optimal: float  # Delta: gap of the optimal predictors (Theorem 1)
    variance: float  # delta: variance of the BC estimator minus that of the IDM estimator
    bias: float  # beta: squared bias of the BC estimator minus that of the IDM estimator
    shift: float  # gamma: irreducible noise under the true minus that under the approximate predictor

    @property
    def total(self) -> float:
        """Delta + delta + beta + gamma."""
        return sum(self)


class Measured(NamedTuple):
    """Value estimated from samples, with its standard error."""

    value: float
    error: float

    @classmethod
    def mean_of(cls, values: Floats) -> Measured:
        """Return the mean of independent values (N,)."""
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def sample_efficiency(fisher: Pair, mse: float, bias: Pair = (0.0, 0.0), slope: Pair = (0.0, 0.0)) -> float:
    """Theorem 2: return eta = n / m, samples BC needs over samples the IDM needs for the same parameter error.

    Assumes i.i.d. samples (2), policy classes that hold the expert (3), and estimators that attain the biased
    Cramer-Rao bound, so it holds for large n and m. The Fisher informations are those of one sample, `mse` is the mean
    squared error to reach, and `slope` is the derivative of the bias with respect to the true parameter.
    """
    if mse <= max(bias[0] ** 2, bias[1] ** 2):
        raise ValueError(f"an error of {mse} is below a squared bias and never reached; ask for a larger one")
    bias_ratio = (mse - bias[1] ** 2) / (mse - bias[0] ** 2)
    return fisher[1] / fisher[0] * bias_ratio * ((1 + slope[0]) / (1 + slope[1])) ** 2


def samples_needed(sizes: NDArray[np.int64], mse: Floats, target: float) -> float:
    """Return the number of samples at which an MSE curve (sizes,) first falls to target, interpolated in log-log."""
    below = np.flatnonzero(mse <= target)
    if not len(below) or below[0] == 0:
        raise ValueError(f"{sizes[0]} to {sizes[-1]} samples do not cross the error {target}; widen the sizes")
    i = below[0]
    (x0, x1), (y0, y1) = np.log(sizes[i - 1 : i + 1]), np.log(mse[i - 1 : i + 1])
    return float(np.exp(x0 + (np.log(target) - y0) / (y1 - y0) * (x1 - x0)))


def measured_efficiency(sizes: NDArray[np.int64], bc: Floats, idm: Floats, target: float) -> Measured:
    """Return the measured n / m from squared errors (datasets, sizes) of both; jackknife over groups of datasets."""
    groups = np.array([[part.mean(axis=0) for part in np.array_split(errors, GROUPS)] for errors in (bc, idm)])

    def ratio(means: Floats) -> float:
        needed = [samples_needed(sizes, mse, target) for mse in means.mean(axis=1)]
        return needed[0] / needed[1]

    left_out = np.array([ratio(np.delete(groups, group, axis=1)) for group in range(GROUPS)])
    return Measured(ratio(groups), float(np.sqrt((GROUPS - 1) * left_out.var())))
