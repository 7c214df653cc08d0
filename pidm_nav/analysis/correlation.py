"""Does a better state predictor make a better agent? Prediction error against performance over sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pidm_nav import plots
from pidm_nav.analysis.predictor import fit_predictor, prediction_errors
from pidm_nav.analysis.states import Finding
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.experiments.results import make_curves, read_manifest, read_results
from pidm_nav.experiments.sweep import sample_demos

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.experiments.curves import Curve
    from pidm_nav.experiments.results import Cell

MARKERS = ("o", "s", "D", "^", "v", "P")


class Correlation(NamedTuple):
    """Rank correlation of prediction error and performance."""

    curves: list[Finding]  # errors and performances, see `_curve`, of each task and demonstrator
    settings: int  # how many of them there are
    spearman: float
    p: float  # two-sided


def sweep_correlation(
    results: Sequence[str | Path], datasets: Sequence[DemoDataset], agent: str = "pidm"
) -> Correlation:
    """Compare the nearest neighbor's error with the agents' performance, over folders that `pidm-nav sweep` wrote.

    The error is that of a predictor fitted on the very demonstrations an agent learned from, on all others of the
    dataset, so the datasets must be those that the sweeps drew from.
    """
    from scipy.stats import spearmanr

    known = {dataset.sha256: dataset for dataset in datasets}
    curves: list[Finding] = []
    for folder in results:
        manifest, (done, _) = read_manifest(folder), read_results(folder)
        for curve in make_curves(done, manifest.demos_from):
            if curve.agent != agent:
                continue
            dataset = known.get(manifest.demos[curve.task].sha256) if curve.task in manifest.demos else None
            if dataset is None:
                other = f"the sweep in '{folder}' learned {curve.task} from other demonstrations than those given"
                raise ValueError(f"{other}: name the same files")
            found = _curve(curve, dataset, done)
            curves += [found] if found.columns["demos"] else []
    errors, ratios = ([x for curve in curves for x in curve.columns[key]] for key in ("error", "goal_ratio"))
    if len(errors) < 3:
        raise ValueError(f"the sweeps hold {len(errors)} results of {agent} with held-out demonstrations: 3 are needed")
    rank = spearmanr(errors, ratios)
    return Correlation(curves, len(errors), float(rank.statistic), float(rank.pvalue))


def _curve(curve: Curve, dataset: DemoDataset, cells: Iterable[Cell]) -> Finding:
    """Find the mean error and performance for each number of demonstrations that leaves some to hold out."""
    columns: dict[str, list[Any]] = {"demos": [], "seeds": [], "error": [], "goal_ratio": []}
    for size, ratio in zip(curve.sizes, curve.mean, strict=True):
        errors = []
        for cell in (each for each in cells if (each.agent, each.task, each.demos) == (curve.agent, curve.task, size)):
            training = sample_demos(dataset, cell)
            chosen = {id(episode) for episode in training}
            others = [i for i, episode in enumerate(dataset) if id(episode) not in chosen]
            if others:
                errors.append(prediction_errors(fit_predictor("nearest", training), dataset[others]).distance)
        if errors and np.isfinite(ratio):
            for column, value in zip(columns.values(), (size, len(errors), np.mean(errors), ratio), strict=True):
                column.append(value)
    return Finding(dataset, columns, {})


def plot_correlation(correlation: Correlation) -> Figure:
    """Plot performance against prediction error: markers tell tasks, colors demonstrators, sizes the amount of data."""
    curves = correlation.curves
    colors = plots.color_by_demonstrator(curves)
    markers = dict(zip(dict.fromkeys(curve.task for curve in curves), cycle(MARKERS), strict=False))
    figure, (ax,) = plots.panels(1, width=7.2, height=4.8)
    for curve in curves:
        style: Any = {"color": colors[curve.demonstrator], "markeredgecolor": "white"}
        for point in curve.rows():
            size = _size(point["demos"])
            ax.plot(point["error"], point["goal_ratio"], markers[curve.task], markersize=size, **style)
    plots.tidy(ax)
    ax.set(xlabel="state prediction error (px)", ylabel="goals reached", xscale="log")
    ax.set_ylim(top=1.05)
    ax.set_title(f"Spearman {correlation.spearman:.2f} over {correlation.settings} settings", fontsize=12)
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
