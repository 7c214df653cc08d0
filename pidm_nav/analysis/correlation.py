"""Does a better state predictor make a better agent? Prediction error against performance over sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pidm_nav import plots
from pidm_nav.analysis.predictor import prediction_errors, predictor_maker
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.experiments.curves import Curve
    from pidm_nav.experiments.results import Cell

MARKERS = ("o", "s", "D", "^", "v", "P")


class Point(NamedTuple):
    """The agents of a sweep that share one task, demonstrator and number of demonstrations."""

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
    """Compare the nearest neighbor's error with the agents' performance, over folders that `pidm-nav sweep` wrote.

    The error is that of a predictor fitted on the very demonstrations an agent learned from, on all others of the
    dataset, so the datasets must be those that the sweeps drew from.
    """
    from scipy.stats import spearmanr

    from pidm_nav.experiments.results import make_curves, read_manifest, read_results

    known = {dataset.sha256: dataset for dataset in datasets}
    points: list[Point] = []
    for folder in results:
        manifest, (done, _) = read_manifest(folder), read_results(folder)
        for curve in make_curves(done, manifest.demos_from):
            if curve.agent != agent:
                continue
            dataset = known.get(manifest.demos[curve.task].sha256) if curve.task in manifest.demos else None
            if dataset is None:
                other = f"the sweep in '{folder}' learned {curve.task} from other demonstrations than those given"
                raise ValueError(f"{other}: name the same files after --demos")
            points += _points(curve, dataset, done)
    if len(points) < 3:
        raise ValueError(f"the sweeps hold {len(points)} results of {agent} with held-out demonstrations: 3 are needed")
    rank = spearmanr([point.error for point in points], [point.goal_ratio for point in points])
    return Correlation(points, float(rank.statistic), float(rank.pvalue))


def _points(curve: Curve, dataset: DemoDataset, cells: Iterable[Cell]) -> list[Point]:
    """Return the mean error and performance of each size that leaves demonstrations to hold out."""
    from pidm_nav.experiments.curves import mean_curve
    from pidm_nav.experiments.sweep import sample_demos

    make, points = predictor_maker("nearest", dataset), []
    for size, ratio in zip(curve.sizes, mean_curve(curve), strict=True):
        errors = []
        for cell in (each for each in cells if (each.agent, each.task, each.demos) == (curve.agent, curve.task, size)):
            training = sample_demos(dataset, cell)
            chosen = {id(episode) for episode in training}
            others = [i for i, episode in enumerate(dataset) if id(episode) not in chosen]
            if others:
                errors.append(prediction_errors(make().fit(training), dataset[others]).distance)
        if errors and np.isfinite(ratio):
            error, title = float(np.mean(errors)), plots.demonstrator_title(dataset)
            points.append(Point(curve.task, title, size, len(errors), error, float(ratio)))
    return points


def plot_correlation(correlation: Correlation) -> Figure:
    """Plot performance against prediction error: markers tell tasks, colors demonstrators, sizes the amount of data."""
    points = correlation.points
    colors = plots.color_by_demonstrator(points)
    markers = dict(zip(dict.fromkeys(point.task for point in points), cycle(MARKERS), strict=False))
    figure, (ax,) = plots.panels(1, width=7.2, height=4.8)
    for point in points:
        style: Any = {"color": colors[point.demonstrator], "markeredgecolor": "white", "markersize": _size(point.demos)}
        ax.plot(point.error, point.goal_ratio, markers[point.task], **style)
    plots.tidy(ax)
    ax.set(xlabel="state prediction error (px)", ylabel="goals reached", xscale="log")
    ax.set_ylim(top=1.05)
    ax.set_title(f"Spearman {correlation.spearman:.2f} over {len(points)} settings", fontsize=12)
    ticks = [t for t in (7, 8, 10, 12, 15, 20, 30, 40, 60, 80) if ax.get_xlim()[0] < t < ax.get_xlim()[1]]
    plots.set_ticks(ax.xaxis, ticks)
    entries = plots.legend_entries(colors)
    for task, marker in markers.items():
        entries += plots.legend_entries({plots.task_title(task): "0.4"}, marker=marker, linewidth=0)
    for demos in (1, 5, 20):
        entries += plots.legend_entries({f"from {demos}": "0.4"}, marker="o", linewidth=0, markersize=_size(demos))
    ax.legend(handles=entries, frameon=False, fontsize=9, loc="lower left")
    return figure


def _size(demos: int) -> float:
    """Return the marker size for a number of demonstrations."""
    return float(5 + 1.3 * np.log2(demos))
