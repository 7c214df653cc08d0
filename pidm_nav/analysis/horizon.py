"""How far ahead can the future be predicted? Future variance and prediction error against k: Appendix F.

The nearest neighbour's future is a draw of p(s_{t+k} | s_t), not its mean, so its squared error is to be about
twice the variance. At k = 1 the variance also holds the width of the clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import figures
from pidm_nav.analysis.clusters import StateClusters, cluster_states, state_dataset
from pidm_nav.analysis.predictor import MakePredictor, prediction_errors, predictor_maker
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
HORIZONS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)


def future_variance(dataset: DemoDataset, clusters: StateClusters, horizon: int, clamp_end: bool) -> float:
    """E[Var(s_{t+k} | s_t)] summed over the state's numbers, s_t known by its cluster.

    A cluster's variance divides by its samples less one; clusters with one sample say nothing and are left out.
    """
    transitions = dataset.transitions(horizon)
    now, future = clusters.assign(transitions.state), transitions.future.astype(np.float64)
    if not clamp_end:
        lengths = np.array([len(episode) for episode in dataset])
        whole = transitions.step + horizon <= lengths[transitions.episode]
        if not whole.any():
            raise ValueError(f"no episode is longer than {horizon} steps: choose a shorter horizon")
        now, future = now[whole], future[whole]
    _, row, count = np.unique(now, return_inverse=True, return_counts=True)
    varying = future[:, np.ptp(future, axis=0) > 0]
    means = np.stack([np.bincount(row, column) / count for column in varying.T], axis=1)
    squares = np.bincount(row, ((varying - means[row]) ** 2).sum(axis=1))
    told = count > 1
    return float((count * squares / np.maximum(count - 1, 1))[told].sum() / count[told].sum())


@dataclass(frozen=True, eq=False)
class HorizonCurve:
    """Future variance (horizons,) and squared prediction error (horizons, splits)."""

    task: str
    demonstrator: str
    predictor: str
    horizons: tuple[int, ...]
    variance: Floats
    squared: Floats
    distance: Floats

    def rows(self) -> list[figures.Row]:
        """One row a horizon: mean and standard deviation over splits."""
        rows = []
        for i, horizon in enumerate(self.horizons):
            error = float(self.squared[i].mean())
            row: dict[str, Any] = {"task": self.task, "demonstrator": self.demonstrator}
            row |= {"predictor": self.predictor, "horizon": horizon, "splits": self.squared.shape[1]}
            row |= {"future_variance": float(self.variance[i]), "squared_error": error}
            row |= {"squared_error_std": float(self.squared[i].std())}
            row |= {"error": float(self.distance[i].mean()), "ratio": error / float(self.variance[i])}
            rows.append(row)
        return rows


def horizon_curve(
    dataset: DemoDataset,
    predictor: str | MakePredictor = "nearest",
    horizons: Sequence[int] = HORIZONS,
    splits: int = 100,
    training: int = 40,
    clusters: int = 500,
    clamp_end: bool = False,
    *,
    rng: np.random.Generator,
) -> HorizonCurve:
    """Future variance and prediction error for each horizon.

    Args:
        dataset: demonstrations.
        predictor: a name in `PREDICTORS`, or a function that makes one.
        horizons: k.
        splits: random divisions into training and held-out episodes, the same for every horizon.
        training: episodes to fit the predictor on.
        clusters: K of the K-means that stands for knowing s_t.
        clamp_end: count steps whose future is cut off by the episode's end, as its last state. They are easy to
            predict, so both curves bend down where k nears the episodes' length.
        rng: draws clusters and splits.
    """
    if splits < 1 or not horizons:
        raise ValueError(f"{splits} splits of {len(horizons)} horizons: at least one of each is needed")
    states = state_dataset(dataset)
    found = cluster_states(states, clusters, rng)
    make = predictor_maker(predictor, dataset) if isinstance(predictor, str) else predictor
    parts = [dataset.split(training, rng) for _ in range(splits)]
    variance = np.array([future_variance(states, found, k, clamp_end) for k in horizons])
    errors = np.array(
        [[prediction_errors(make().fit(first, k), second, k, clamp_end) for first, second in parts] for k in horizons]
    )  # (horizons, splits, 3)
    name = predictor if isinstance(predictor, str) else make().name
    who = figures.demonstrator(dataset)
    return HorizonCurve(dataset.task, who, name, tuple(horizons), variance, errors[:, :, 1], errors[:, :, 0])


def plot_horizon_curves(curves: Sequence[HorizonCurve]) -> Figure:
    """Variance (dashed) and squared error (line) against k: a panel a task, a colour a demonstrator."""
    from matplotlib.lines import Line2D

    tasks, names = (figures.unique([getattr(c, key) for c in curves]) for key in ("task", "demonstrator"))
    figure, axes = figures.panels(len(tasks), width=4.6, height=3.2)
    for ax, task in zip(axes, tasks, strict=True):
        for curve in (c for c in curves if c.task == task):
            hue = figures.colour(curve.demonstrator, names)
            mean, std = curve.squared.mean(axis=1), curve.squared.std(axis=1)
            low = np.maximum(mean - std, mean / 10)  # a logarithmic axis has no room for zero
            ax.fill_between(curve.horizons, low, mean + std, color=hue, alpha=0.18, linewidth=0)
            ax.plot(curve.horizons, mean, color=hue, marker="o", markersize=4)
            ax.plot(curve.horizons, curve.variance, color=hue, linestyle="--", marker="s", markersize=3)
        figures.tidy(ax)
        ax.set(xlabel="horizon k (steps)", ylabel="px²", yscale="log")
        ax.set_title(figures.title(task), fontsize=12)
    handles = [Line2D([], [], color=figures.colour(name, names), lw=4, label=name) for name in names]
    handles.append(Line2D([], [], color="0.3", marker="o", markersize=4, label="squared prediction error"))
    handles.append(Line2D([], [], color="0.3", ls="--", marker="s", markersize=3, label="Var(future | state)"))
    figure.legend(handles=handles, frameon=False, ncols=4, loc="outside lower center", fontsize=9)
    return figure
