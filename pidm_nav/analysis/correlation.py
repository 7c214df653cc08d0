"""Does a better state predictor make a better agent? Prediction error against performance over sweeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pidm_nav.analysis import figures
from pidm_nav.analysis.predictor import prediction_errors, predictor_maker
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.experiments.curves import Curve
    from pidm_nav.experiments.results import Cell


class Point(NamedTuple):
    """A sweep's agents of one task, demonstrator and number of demonstrations."""

    task: str
    demonstrator: str
    demos: int
    seeds: int
    error: float  # of the state predictor on held-out episodes, mean over seeds
    goal_ratio: float  # of the agents, mean over seeds at the best checkpoint


class Correlation(NamedTuple):
    """Rank correlation of prediction error and performance."""

    points: list[Point]
    spearman: float
    p: float  # two-sided


def sweep_correlation(results: Sequence[Path], datasets: Sequence[DemoDataset], agent: str = "pidm") -> Correlation:
    """The nearest neighbour's error against rollout performance, over folders that `pidm-nav sweep` wrote.

    The error is that of a predictor fitted on the very demonstrations an agent learned from, on all others.

    Args:
        results: the folders.
        datasets: the demonstrations that the sweeps drew from.
        agent: whose performance.
    """
    from scipy.stats import spearmanr

    from pidm_nav.experiments.results import make_curves, read_manifest, read_results

    known = {_fingerprint(dataset): dataset for dataset in datasets}
    points: list[Point] = []
    for folder in results:
        manifest, (done, _) = read_manifest(folder), read_results(folder)
        for curve in make_curves(done, str(manifest["demos_from"])):
            if curve.agent != agent:
                continue
            dataset = known.get(manifest["demos"].get(curve.task, {}).get("sha256"))
            if dataset is None:
                raise ValueError(
                    f"the sweep in '{folder}' learned {curve.task} from other demonstrations than the given: "
                    "name the same files after --demos"
                )
            points += _points(curve, dataset, [cell for cell in done if cell.agent == agent])
    if len(points) < 3:
        raise ValueError(f"the sweeps hold {len(points)} results of {agent} with held-out demonstrations: 3 are needed")
    rank = spearmanr([point.error for point in points], [point.goal_ratio for point in points])
    return Correlation(points, float(rank.statistic), float(rank.pvalue))


def _fingerprint(dataset: DemoDataset) -> str:
    """The hash of a dataset's numbers that a sweep's manifest has."""
    digest = hashlib.sha256()
    for episode in dataset:
        digest.update(episode.observations.tobytes() + episode.actions.tobytes())
    return digest.hexdigest()


def _points(curve: Curve, dataset: DemoDataset, cells: Sequence[Cell]) -> list[Point]:
    """Mean error and performance of each size that leaves demonstrations to hold out."""
    from pidm_nav.experiments.curves import mean_curve
    from pidm_nav.experiments.sweep import sample_demos

    make, points = predictor_maker("nearest", dataset), []
    for size, ratio in zip(curve.sizes, mean_curve(curve), strict=True):
        errors = []
        for cell in (cell for cell in cells if (cell.task, cell.demos) == (curve.task, size)):
            training = sample_demos(dataset, cell)
            chosen = {id(episode) for episode in training}
            others = [i for i, episode in enumerate(dataset) if id(episode) not in chosen]
            if others:
                errors.append(prediction_errors(make().fit(training), dataset[others]).distance)
        if errors and np.isfinite(ratio):
            error, who = float(np.mean(errors)), figures.demonstrator(dataset)
            points.append(Point(curve.task, who, size, len(errors), error, float(ratio)))
    return points


def plot_correlation(correlation: Correlation) -> Figure:
    """Performance against prediction error: a marker a task, a colour a demonstrator, larger for more data."""
    from matplotlib.lines import Line2D

    points = correlation.points
    tasks, names = (figures.unique([getattr(p, key) for p in points]) for key in ("task", "demonstrator"))
    figure, (ax,) = figures.panels(1, width=7.2, height=4.8)
    for point in points:
        marker, hue = figures.MARKERS[tasks.index(point.task) % 6], figures.colour(point.demonstrator, names)
        size = 5 + 1.3 * np.log2(point.demos)
        ax.plot(point.error, point.goal_ratio, marker, color=hue, markeredgecolor="white", markersize=size)
    figures.tidy(ax)
    ax.set(xlabel="state prediction error (px)", ylabel="goals reached", xscale="log")
    ax.set_ylim(top=1.05)
    ax.set_title(f"Spearman {correlation.spearman:.2f} over {len(points)} settings", fontsize=12)
    ticks = [t for t in (7, 8, 10, 12, 15, 20, 30, 40, 60, 80) if ax.get_xlim()[0] < t < ax.get_xlim()[1]]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    handles = [Line2D([], [], color=figures.colour(name, names), lw=4, label=name) for name in names]
    handles += [
        Line2D([], [], color="0.4", marker=figures.MARKERS[i % 6], lw=0, label=figures.title(task))
        for i, task in enumerate(tasks)
    ]
    handles += [
        Line2D([], [], color="0.4", marker="o", lw=0, markersize=5 + 1.3 * np.log2(n), label=f"from {n}")
        for n in (1, 5, 20)
    ]
    ax.legend(handles=handles, frameon=False, fontsize=9, loc="lower left")
    return figure
