"""How far ahead can the future be predicted? Future variance and prediction error against k: Appendix F.

The nearest neighbor's future is a draw of p(s_{t+k} | s_t), not its mean, so its squared error should be about
twice the variance. At k = 1 the variance also holds the width of the clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pidm_nav.analysis.clusters import Floats, StateClusters, cluster_states, state_dataset
from pidm_nav.analysis.predictor import prediction_errors, predictor_maker, steps_to_count
from pidm_nav.analysis.tables import Finding, Row
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.statistics import group_means
from pidm_nav.plots import color_by_demonstrator, draw_band, legend_entries, outside_legend, task_panels, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HORIZONS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
MOST_TRAINING = 40


@dataclass(frozen=True, kw_only=True)
class HorizonStudy:
    """The options of `horizon_curve`."""

    predictor: Literal["nearest", "time", "learned"] = "nearest"
    """State predictor to test."""
    horizons: tuple[int, ...] = ()
    """Numbers of steps ahead; by default those of 1, 5, 10, ..., 50 that the shortest episode has."""
    splits: int = 100
    """Number of random splits into training and held-out episodes, the same for every horizon."""
    training: int | None = None
    """Number of episodes to fit the predictor on; by default four fifths of all, at most 40."""
    clusters: int | None = None
    """Number of K-means clusters that stand for knowing the state; by default 500, or a quarter of the steps."""
    clamp_end: bool = False
    """Also count steps whose future is cut off by the episode's end, as its last state, which is easy to predict."""


def future_variance(dataset: DemoDataset, clusters: StateClusters, horizon: int, clamp_end: bool) -> float:
    """Return E[Var(s_{t+k} | s_t)] summed over the state's numbers, where s_t is known by its cluster.

    A cluster's variance divides by its samples less one; clusters with one sample say nothing and are left out.
    """
    counted, transitions = steps_to_count(dataset, horizon, clamp_end), dataset.transitions(horizon)
    now, future = clusters.assign(transitions.state)[counted], transitions.future.astype(np.float64)[counted]
    _, row, count = np.unique(now, return_inverse=True, return_counts=True)
    varying = future[:, np.ptp(future, axis=0) > 0]
    squares = np.bincount(row, ((varying - group_means(varying, row)[row]) ** 2).sum(axis=1))
    told = count > 1
    return float((count * squares / np.maximum(count - 1, 1))[told].sum() / count[told].sum())


@dataclass(frozen=True, eq=False)
class HorizonCurve(Finding):
    """Future variance (horizons,) and errors (horizons, splits) of a predictor."""

    predictor: str
    horizons: tuple[int, ...]
    variance: Floats
    squared: Floats
    distance: Floats

    def columns(self) -> Row:
        """Return one entry per horizon: mean and standard deviation over splits."""
        error = self.squared.mean(axis=1)
        columns: Row = {"predictor": self.predictor, "horizon": self.horizons, "splits": self.squared.shape[1]}
        columns |= {"future_variance": self.variance, "squared_error": error}
        columns |= {"squared_error_std": self.squared.std(axis=1), "error": self.distance.mean(axis=1)}
        return columns | {"ratio": error / self.variance}


def horizon_curve(dataset: DemoDataset, study: HorizonStudy | None = None, *, rng: np.random.Generator) -> HorizonCurve:
    """Measure the future variance and the prediction error for each horizon; `rng` draws clusters and splits."""
    study = study or HorizonStudy()
    if study.splits < 1:
        raise ValueError(f"splits is {study.splits}: at least 1 is needed")
    shortest = min(len(episode) for episode in dataset)
    horizons = study.horizons or tuple(k for k in HORIZONS if k <= shortest)
    training = max(1, min(MOST_TRAINING, len(dataset) * 4 // 5)) if study.training is None else study.training
    states = state_dataset(dataset)
    found = cluster_states(states, study.clusters, rng)
    make = predictor_maker(study.predictor, dataset)
    parts = [dataset.split(training, rng) for _ in range(study.splits)]
    variance = np.array([future_variance(states, found, k, study.clamp_end) for k in horizons])
    errors = np.empty((3, len(horizons), study.splits))
    for i, k in enumerate(horizons):
        for j, (first, second) in enumerate(parts):
            errors[:, i, j] = prediction_errors(make().fit(first, k), second, k, study.clamp_end)
    distance, squared, _ = errors
    return HorizonCurve(dataset, study.predictor, horizons, variance, squared, distance)


def plot_horizon_curves(curves: Sequence[HorizonCurve]) -> Figure:
    """Plot variance (dashed) and squared error (line) against k: one panel per task, one color per demonstrator."""
    colors, (figure, parts) = color_by_demonstrator(curves), task_panels(curves)
    for ax, own in parts:
        for curve in own:
            color = colors[curve.demonstrator]
            draw_band(ax, curve.horizons, curve.squared, color)
            ax.plot(curve.horizons, curve.variance, color=color, linestyle="--", marker="s", markersize=3)
        tidy(ax)
        ax.set(xlabel="horizon k (steps)", ylabel="px²", yscale="log")
    entries = legend_entries(colors)
    entries += legend_entries({"squared prediction error": "0.3"}, linewidth=1.5, marker="o", markersize=4)
    entries += legend_entries({"Var(future | state)": "0.3"}, linewidth=1.5, linestyle="--", marker="s", markersize=3)
    outside_legend(figure, entries)
    return figure
