"""Performance curves of a sweep: scores over seeds and checkpoints, their means, spreads and intervals.

Words:
    score        goal ratio of one trained agent at one checkpoint, averaged over its rollouts
    curve        mean score over seeds against the number of demonstrations
    best         per task, agent and number of demonstrations, the checkpoint whose mean over seeds is highest
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Checkpoint = Literal["best", "last"]


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores (sizes, seeds, checkpoints) of one agent on one task, nan where a job is missing."""

    task: str
    agent: str
    demos_from: str
    sizes: tuple[int, ...]
    scores: Floats

    def __post_init__(self) -> None:
        scores = np.array(self.scores, dtype=np.float64)
        name = f"{self.task}/{self.agent}/{self.demos_from}"
        if scores.ndim != 3 or len(scores) != len(self.sizes) or 0 in scores.shape:
            raise ValueError(f"the scores of {name} are {scores.shape}; give ({len(self.sizes)}, seeds, checkpoints)")
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"the sizes of {name} are {self.sizes}; give each once, increasing")
        if np.isinf(scores).any():
            raise ValueError(f"a score of {name} is infinite; mark missing jobs with nan")
        scores.flags.writeable = False
        object.__setattr__(self, "scores", scores)

    @classmethod
    def from_cells(
        cls, task: str, agent: str, demos_from: str, cells: Mapping[tuple[int, int], Sequence[float]]
    ) -> Curve:
        """Build a curve from {(size, seed): score of every checkpoint}; absent cells become nan."""
        if not cells:
            raise ValueError(f"there are no results for {task}/{agent}/{demos_from}; run the sweep first")
        sizes, seeds = (sorted({key[i] for key in cells}) for i in (0, 1))
        scores = np.full((len(sizes), len(seeds), max(map(len, cells.values()))), np.nan)
        for (size, seed), values in cells.items():
            scores[sizes.index(size), seeds.index(seed), : len(values)] = values
        return cls(task, agent, demos_from, tuple(sizes), scores)


def _mean(values: Floats, axis: int) -> Floats:
    """Mean that skips nan and is nan, without a warning, where everything is missing."""
    count = np.isfinite(values).sum(axis=axis)
    total: Floats = np.nansum(values, axis=axis)
    mean: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean


def best_checkpoint(curve: Curve) -> NDArray[np.int64]:
    """Index (sizes,) of the checkpoint with the highest mean over seeds, earliest of equals; -1 if none."""
    means = _mean(curve.scores, axis=1)
    index = np.where(np.isnan(means), -np.inf, means).argmax(axis=1)
    return np.where(np.isnan(means).all(axis=1), -1, index)


def seed_scores(curve: Curve, checkpoint: Checkpoint = "best") -> Floats:
    """Scores (sizes, seeds) at the best checkpoint of each size, or at the last one."""
    if checkpoint == "last":
        return curve.scores[:, :, -1]
    rows, index = np.arange(len(curve.sizes)), np.maximum(best_checkpoint(curve), 0)
    return curve.scores[rows, :, index]


def mean_curve(curve: Curve, checkpoint: Checkpoint = "best") -> Floats:
    """Mean over seeds (sizes,), nan where no seed was run."""
    return _mean(seed_scores(curve, checkpoint), axis=1)


def std_curve(curve: Curve, checkpoint: Checkpoint = "best") -> Floats:
    """Sample standard deviation over seeds (sizes,), nan below two seeds."""
    scores = seed_scores(curve, checkpoint)
    count = np.isfinite(scores).sum(axis=1)
    squares = np.nansum((scores - _mean(scores, axis=1)[:, None]) ** 2, axis=1)
    variance = np.divide(squares, count - 1, out=np.full(len(scores), np.nan), where=count > 1)
    std: Floats = np.sqrt(variance)
    return std


def interquartile_mean(values: ArrayLike) -> Floats:
    """Mean over the last axis of what is left without the lowest and highest floor(n/4) values."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    result: Floats = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return result


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Callable[[Floats], Floats],
    rng: np.random.Generator,
    repetitions: int = 2000,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of a statistic of pooled values, resampled inside each stratum (say, a task)."""
    groups = [values[np.isfinite(values)] for values in (np.asarray(s, dtype=np.float64) for s in strata)]
    if not any(len(values) for values in groups):
        return np.nan, np.nan
    draws = [v[rng.integers(len(v), size=(repetitions, len(v)))] for v in groups if len(v)]
    return percentile_interval(statistic(np.concatenate(draws, axis=1)), confidence)


def percentile_interval(replicates: Floats, confidence: float) -> tuple[float, float]:
    """Percentiles that are replicates themselves: ratios may be infinite, so they cannot be interpolated."""
    known = replicates[~np.isnan(replicates)]
    if not len(known):
        return np.nan, np.nan
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def bootstrap_curves(
    curve: Curve, rng: np.random.Generator, checkpoint: Checkpoint = "best", repetitions: int = 2000
) -> Floats:
    """Mean curves (repetitions, sizes) of resampled seeds; the best checkpoint is chosen again each time."""
    means = np.full((repetitions, len(curve.sizes)), np.nan)
    chosen = curve.scores if checkpoint == "best" else curve.scores[:, :, -1:]
    for i, scores in enumerate(chosen):  # scores (seeds, checkpoints): a size is a stratum
        present = scores[np.isfinite(scores).any(axis=1)]
        if len(present):
            draws = present[rng.integers(len(present), size=(repetitions, len(present)))]
            per_checkpoint = _mean(draws, axis=1)  # (repetitions, checkpoints)
            highest = np.where(np.isnan(per_checkpoint), -np.inf, per_checkpoint).max(axis=1)
            means[:, i] = np.where(np.isneginf(highest), np.nan, highest)
    return means


def summarise(
    curve: Curve, rng: np.random.Generator, checkpoint: Checkpoint = "best", repetitions: int = 2000
) -> list[dict[str, Any]]:
    """One row a size: mean, std, IQM over seeds and 95% bootstrap intervals of mean and IQM."""
    scores, index = seed_scores(curve, checkpoint), best_checkpoint(curve)
    replicates = bootstrap_curves(curve, rng, checkpoint, repetitions)
    mean, std = mean_curve(curve, checkpoint), std_curve(curve, checkpoint)
    rows = []
    for i, size in enumerate(curve.sizes):
        present = scores[i][np.isfinite(scores[i])]
        low, high = percentile_interval(replicates[:, i], 0.95)
        iqm_low, iqm_high = stratified_bootstrap([present], interquartile_mean, rng, repetitions)
        rows.append(
            {
                "task": curve.task,
                "agent": curve.agent,
                "demos_from": curve.demos_from,
                "demos": size,
                "seeds": len(present),
                "checkpoint": int(index[i]) if checkpoint == "best" else curve.scores.shape[2] - 1,
                "mean": float(mean[i]),
                "std": float(std[i]),
                "low": low,
                "high": high,
                "iqm": float(interquartile_mean(present)) if len(present) else np.nan,
                "iqm_low": iqm_low,
                "iqm_high": iqm_high,
            }
        )
    return rows
