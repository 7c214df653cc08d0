"""Performance curves of a sweep: scores over seeds and checkpoints, their means, spreads and intervals.

Terms:
    score        goal ratio (or return) of one trained agent at one checkpoint, averaged over its episodes
    curve        mean score over seeds against the number of demonstrations
    best         the checkpoint whose mean over seeds is highest, for each task, agent and number of demonstrations
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
REPETITIONS = 2000  # of every bootstrap


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores (sizes, seeds, checkpoints) of one agent on one task; nan where a job is missing."""

    task: str
    agent: str
    demos_from: str
    sizes: tuple[int, ...]
    scores: Floats

    @classmethod
    def from_cells(
        cls, task: str, agent: str, demos_from: str, cells: Mapping[tuple[int, int], Sequence[float]]
    ) -> Curve:
        """Build a curve from {(size, seed): score of every checkpoint}; absent cells become nan."""
        sizes, seeds = (sorted({key[i] for key in cells}) for i in (0, 1))
        scores = np.full((len(sizes), len(seeds), max(map(len, cells.values()))), np.nan)
        for (size, seed), values in cells.items():
            scores[sizes.index(size), seeds.index(seed), : len(values)] = values
        return cls(task, agent, demos_from, tuple(sizes), scores)

    @property
    def is_share(self) -> bool:
        """Whether scores are shares of goals or successes; returns are not, and have no share of a maximum."""
        known = self.scores[np.isfinite(self.scores)]
        return bool(((known >= 0) & (known <= 1)).all())

    @property
    def checkpoints(self) -> int:
        """How often each agent was evaluated."""
        return int(self.scores.shape[2])

    def last(self) -> Curve:
        """Return the same curve at the end of training, without the checkpoints before it."""
        return replace(self, scores=self.scores[:, :, -1:])

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """Index (sizes,) of the checkpoint with the highest mean over seeds; -1 where there is none."""
        means = _known(np.nanmean, self.scores, axis=1)
        index = np.where(np.isnan(means), -np.inf, means).argmax(axis=1)
        return np.where(np.isnan(means).all(axis=1), -1, index)

    @cached_property
    def seed_scores(self) -> Floats:
        """Scores (sizes, seeds) at the best checkpoint of each size."""
        return self.scores[np.arange(len(self.sizes)), :, np.maximum(self.best, 0)]

    @cached_property
    def mean(self) -> Floats:
        """Mean over seeds (sizes,) at the best checkpoint; nan where no seed was run."""
        return _known(np.nanmean, self.seed_scores, axis=1)

    @cached_property
    def std(self) -> Floats:
        """Sample standard deviation over seeds (sizes,) at the best checkpoint; nan below two seeds."""
        return _known(np.nanstd, self.seed_scores, axis=1, ddof=1)

    def bootstrap(self, rng: np.random.Generator) -> Floats:
        """Return means (REPETITIONS, sizes) of resampled seeds; the best checkpoint is chosen again each time."""
        means = np.full((REPETITIONS, len(self.sizes)), np.nan)
        for i, scores in enumerate(self.scores):  # scores (seeds, checkpoints): each size is resampled by itself
            present = scores[np.isfinite(scores).any(axis=1)]
            if len(present):
                means[:, i] = _known(np.nanmax, _known(np.nanmean, resample(present, rng), axis=1), axis=1)
        return means


def _known(statistic: Callable[..., Floats], values: Floats, axis: int, **options: int) -> Floats:
    """Apply one of NumPy's nan-functions; where every value is missing, the result is nan without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return statistic(values, axis=axis, **options)


def score_name(curves: Iterable[Curve]) -> str:
    """Return what the curves' scores are, as tables and figures call it."""
    return "goal ratio" if all(curve.is_share for curve in curves) else "return"


def score_text(mean: float, std: float) -> str:
    """Return a mean with its standard deviation, if that is known, as tables and figures show it."""
    return f"{mean:.2f}" if np.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def all_sizes(curves: Iterable[Curve]) -> list[int]:
    """Return every number of demonstrations that some curve has a score for, in order."""
    return sorted({size for curve in curves for size in curve.sizes})


def resample(values: Floats, rng: np.random.Generator) -> Floats:
    """Draw as many rows as there are, with replacement: (REPETITIONS, ...values.shape)."""
    return values[rng.integers(len(values), size=(REPETITIONS, len(values)))]


def percentile_interval(replicates: Floats) -> tuple[float, float]:
    """Return the 2.5% and 97.5% percentiles, which are replicates themselves: infinite ratios have no average."""
    known = replicates[~np.isnan(replicates)]
    if not len(known):
        return np.nan, np.nan
    low, high = np.quantile(known, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2], method="inverted_cdf")
    return float(low), float(high)


def summarize(curve: Curve, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return one row per size: mean, standard deviation, interquartile mean and their 95% bootstrap intervals."""
    from scipy.stats import trim_mean

    replicates = curve.bootstrap(rng)
    columns = (curve.sizes, curve.seed_scores, curve.best, curve.mean, curve.std)
    rows = []
    for i, (size, scores, checkpoint, mean, std) in enumerate(zip(*columns, strict=True)):
        row = {"task": curve.task, "agent": curve.agent, "demos_from": curve.demos_from, "demos": size}
        present = scores[np.isfinite(scores)]
        row |= {"seeds": len(present), "checkpoint": int(checkpoint), "mean": float(mean), "std": float(std)}
        row["low"], row["high"] = percentile_interval(replicates[:, i])
        row |= dict.fromkeys(("iqm", "iqm_low", "iqm_high"), np.nan)
        if len(present):
            row["iqm"] = float(trim_mean(present, 0.25))
            middles = trim_mean(resample(present, rng), 0.25, axis=-1)
            row["iqm_low"], row["iqm_high"] = percentile_interval(middles)
        rows.append(row)
    return rows
