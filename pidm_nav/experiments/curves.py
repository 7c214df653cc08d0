"""Performance curves of a sweep: scores over seeds and checkpoints, with means, standard deviations and intervals.

Terms:
    score        mean goal ratio (or return) of one trained agent at one checkpoint
    curve        mean score over seeds against the number of demonstrations
    best         checkpoint with the highest mean over seeds, per task, agent and number of demonstrations
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.statistics import Floats, estimate_mean, percentile_interval, resample
from pidm_nav.tasks import Metric


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores (sizes, seeds, checkpoints) of one agent on one task; nan where a job is missing."""

    task: str
    agent: str
    demos_from: str
    sizes: tuple[int, ...]
    scores: Floats
    seeds: tuple[int, ...] = ()  # by default 0, 1, ...
    metric: Metric = "goal ratio"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", self.seeds or tuple(range(self.scores.shape[1])))

    @classmethod
    def from_cells(
        cls,
        task: str,
        agent: str,
        demos_from: str,
        cells: Mapping[tuple[int, int], Sequence[float]],
        metric: Metric = "goal ratio",
    ) -> Curve:
        """Build a curve from {(size, seed): score of every checkpoint}; absent cells become nan."""
        sizes, seeds = (sorted({key[i] for key in cells}) for i in (0, 1))
        scores = np.full((len(sizes), len(seeds), max(map(len, cells.values()))), np.nan)
        for (size, seed), values in cells.items():
            scores[sizes.index(size), seeds.index(seed), : len(values)] = values
        return cls(task, agent, demos_from, tuple(sizes), scores, tuple(seeds), metric)

    @property
    def is_share(self) -> bool:
        """Whether scores are fractions of goals or successes, not returns."""
        return self.metric != "return"

    @property
    def checkpoints(self) -> int:
        """Number of evaluations of each agent."""
        return int(self.scores.shape[2])

    def last(self) -> Curve:
        """Return the curve at the end of training only."""
        return replace(self, scores=self.scores[:, :, -1:])

    @cached_property
    def best(self) -> NDArray[np.int64]:
        """Index (sizes,) of the checkpoint with the highest mean over seeds; -1 without scores."""
        means = _known(np.nanmean, self.scores, axis=1)
        index = np.where(np.isnan(means), -np.inf, means).argmax(axis=1)
        return np.where(np.isnan(means).all(axis=1), -1, index)

    @cached_property
    def seed_scores(self) -> Floats:
        """Scores (sizes, seeds) at the best checkpoint of each size."""
        return self.scores[np.arange(len(self.sizes)), :, np.maximum(self.best, 0)]

    @cached_property
    def mean(self) -> Floats:
        """Mean over seeds (sizes,) at the best checkpoint; nan without scores."""
        return _known(np.nanmean, self.seed_scores, axis=1)

    @cached_property
    def std(self) -> Floats:
        """Sample standard deviation over seeds (sizes,) at the best checkpoint; nan below two seeds."""
        return _known(np.nanstd, self.seed_scores, axis=1, ddof=1)

    def bootstrap(self, seeds: NDArray[np.int64]) -> Floats:
        """Return means (R, sizes) over resampled seeds (R, N); the best checkpoint is chosen again each time."""
        names, index = np.unique(seeds, return_inverse=True)
        row = {seed: row for row, seed in enumerate(self.seeds)}  # missing seeds are rows of nan
        rows = np.array([row.get(name, len(row)) for name in names.tolist()])[index].reshape(seeds.shape)
        known = np.append(self.scores, np.full((len(self.sizes), 1, self.checkpoints), np.nan), axis=1)
        drawn = (scores[rows] for scores in known)  # (R, N, checkpoints) each
        return np.stack([_known(np.nanmax, _known(np.nanmean, each, axis=1), axis=1) for each in drawn], axis=1)


def _known(statistic: Callable[..., Floats], values: Floats, axis: int, **options: int) -> Floats:
    """Apply one of NumPy's nan-functions without warnings about missing values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return statistic(values, axis=axis, **options)


def score_name(curves: Iterable[Curve]) -> str:
    """Return the name of the curves' scores in tables and figures."""
    metrics = {curve.metric for curve in curves}
    return metrics.pop() if len(metrics) == 1 else "score"


def score_text(mean: float, std: float) -> str:
    """Return a mean with its standard deviation, if known, as text."""
    return f"{mean:.2f}" if np.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def all_sizes(curves: Iterable[Curve]) -> list[int]:
    """Return all numbers of demonstrations of the curves, sorted."""
    return sorted({size for curve in curves for size in curve.sizes})


def summarize(curve: Curve, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return one row per size: mean with its 95% t interval over seeds, standard deviation, interquartile mean."""
    from scipy.stats import trim_mean

    columns = (curve.sizes, curve.seed_scores, curve.best, curve.std)
    rows = []
    for size, scores, checkpoint, std in zip(*columns, strict=True):
        row = {"task": curve.task, "agent": curve.agent, "demos_from": curve.demos_from, "demos": size}
        present = scores[np.isfinite(scores)]
        mean, low, high, _, seeds = estimate_mean(present, bounds=(0, 1) if curve.is_share else (-np.inf, np.inf))
        row |= {
            "seeds": seeds,
            "checkpoint": int(checkpoint),
            "mean": mean,
            "std": float(std),
            "low": low,
            "high": high,
        }
        row |= dict.fromkeys(("iqm", "iqm_low", "iqm_high"), np.nan)
        if seeds:
            row["iqm"] = float(trim_mean(present, 0.25))
            middles = trim_mean(resample(present, rng), 0.25, axis=-1)
            row["iqm_low"], row["iqm_high"] = percentile_interval(middles, seeds)
        rows.append(row)
    return rows
