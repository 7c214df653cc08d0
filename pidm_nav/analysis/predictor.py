"""How good is a state predictor on episodes it has not seen? The paper's Figures 7b and 7d, and Appendix D.

A predictor is fitted on n episodes and asked about every step of the others. An error is the Euclidean distance
between predicted and true future observation, in raw numbers (pixels; a wrong reached flag counts as one).
The noise of the environment bounds it: two draws of the same step lie `noise_floor` px apart on average, and
the nearest neighbour's future is such a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import figures
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.physics import SPEED
from pidm_nav.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.agents.predictors import StatePredictor

Array = NDArray[Any]
Floats = NDArray[np.float64]
MakePredictor = Callable[[], "StatePredictor"]
SIZES = (1, 2, 5, 10, 20, 30, 40, 45)


class Errors(NamedTuple):
    """Of one predictor on one set of held-out episodes."""

    distance: float  # mean Euclidean distance
    squared: float  # mean squared distance
    wrong_goals: float  # fraction of futures with a wrong number of goals reached; nan without goals


def predictor_maker(name: str, dataset: DemoDataset, seed: int = 0) -> MakePredictor:
    """New predictors of a name in `PREDICTORS`, for observations like the dataset's."""
    from pidm_nav.agents.predictors import PREDICTORS

    if name not in PREDICTORS:
        raise ValueError(f"no predictor is called '{name}': choose one of {', '.join(PREDICTORS)}")
    scale = None
    if name == "learned" or not dataset.goal_flags:
        from gymnasium import spaces

        from pidm_nav.agents.networks import Scale

        rows = np.concatenate([episode.observations for episode in dataset])
        scale = Scale(spaces.Box(-np.inf, np.inf, rows.shape[1:], np.float32))
        scale.fit(rows)
    return lambda: PREDICTORS[name](scale, seed=seed)


def predict_episodes(predictor: StatePredictor, dataset: DemoDataset) -> Array:
    """(M, D) what a predictor says at each step of each episode, as if an agent lived through them."""
    from pidm_nav.agents.predictors import StatePredictor

    states = dataset.transitions().state
    if type(predictor).advance is StatePredictor.advance:  # it keeps no state: all steps at once
        return predictor.predict(states)
    lengths = np.array([len(episode) for episode in dataset])
    first = np.cumsum(lengths) - lengths
    predicted = np.empty_like(states)
    memory: Any = None
    for step in range(int(lengths.max())):  # all episodes at once; those that ended stand still
        rows = first + np.minimum(step, lengths - 1)
        memory = predictor.advance(memory, np.full(len(lengths), step == 0))
        futures = predictor.predict(states[rows], memory)
        running = step < lengths
        predicted[rows[running]] = futures[running]
    return predicted


def prediction_errors(
    predictor: StatePredictor, held_out: DemoDataset, horizon: int = 1, clamp_end: bool = True
) -> Errors:
    """Errors of a fitted predictor on episodes it has not seen.

    Args:
        predictor: fitted with the same horizon.
        held_out: episodes to predict.
        horizon: steps ahead.
        clamp_end: count the last steps too, whose future is the episode's last state; off leaves them out.
    """
    true = held_out.transitions(horizon)
    difference = predict_episodes(predictor, held_out).astype(np.float64) - true.future
    flags = list(held_out.goal_flags)
    goals = difference[:, flags].sum(axis=1) != 0
    squared = np.einsum("nd,nd->n", difference, difference)
    if not clamp_end:
        lengths = np.array([len(episode) for episode in held_out])
        whole = true.step + horizon <= lengths[true.episode]
        if not whole.any():
            raise ValueError(f"no episode is longer than {horizon} steps: choose a shorter horizon")
        squared, goals = squared[whole], goals[whole]
    wrong = float(goals.mean()) if flags else float("nan")
    return Errors(float(np.sqrt(squared).mean()), float(squared.mean()), wrong)


def noise_floor(noise_std: float = 0.2) -> float:
    """Mean distance in px of two draws of the same step: a Rayleigh mean with sqrt(2) times the noise."""
    return float(SPEED * noise_std * np.sqrt(np.pi))


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """Errors (sizes, subsets) of a predictor against the number of training demonstrations."""

    task: str
    demonstrator: str
    predictor: str
    horizon: int
    sizes: tuple[int, ...]
    distance: Floats
    squared: Floats
    wrong_goals: Floats

    def rows(self) -> list[figures.Row]:
        """One row a size: mean and standard deviation over subsets."""
        return [
            {
                "task": self.task,
                "demonstrator": self.demonstrator,
                "predictor": self.predictor,
                "horizon": self.horizon,
                "demos": size,
                "subsets": self.distance.shape[1],
                "error": float(self.distance[i].mean()),
                "error_std": float(self.distance[i].std()),
                "squared_error": float(self.squared[i].mean()),
                "wrong_goals": float(self.wrong_goals[i].mean()),
            }
            for i, size in enumerate(self.sizes)
        ]


def error_curve(
    dataset: DemoDataset,
    predictor: str | MakePredictor = "nearest",
    sizes: Sequence[int] = SIZES,
    subsets: int = 50,
    horizon: int = 1,
    *,
    rng: np.random.Generator,
) -> ErrorCurve:
    """Errors on held-out episodes for random subsets of each size; a size's subsets are drawn anew."""
    if not sizes or min(sizes) < 1 or max(sizes) >= len(dataset):
        raise ValueError(
            f"sizes {tuple(sizes)} do not fit {len(dataset)} demonstrations: "
            f"choose 1 to {len(dataset) - 1}, as at least one is held out"
        )
    if subsets < 1:
        raise ValueError(f"subsets is {subsets}: at least one is needed")
    make = predictor_maker(predictor, dataset) if isinstance(predictor, str) else predictor
    errors = np.empty((len(sizes), subsets, 3))
    for i, size in enumerate(sizes):
        for j in range(subsets):
            training, held_out = dataset.split(size, rng)
            errors[i, j] = prediction_errors(make().fit(training, horizon), held_out, horizon)
    name = predictor if isinstance(predictor, str) else make().name
    who = figures.demonstrator(dataset)
    return ErrorCurve(dataset.task, who, name, horizon, tuple(sizes), *np.moveaxis(errors, 2, 0))


def plot_error_curves(curves: Sequence[ErrorCurve]) -> Figure:
    """Error against demonstrations: a panel a task, a line a demonstrator, bands of one standard deviation."""
    tasks, names = (figures.unique([getattr(c, key) for c in curves]) for key in ("task", "demonstrator"))
    figure, axes = figures.panels(len(tasks), width=4.6, height=3.2)
    for ax, task in zip(axes, tasks, strict=True):
        for curve in (c for c in curves if c.task == task):
            hue, mean, std = figures.colour(curve.demonstrator, names), *_mean_std(curve.distance)
            ax.fill_between(curve.sizes, mean - std, mean + std, color=hue, alpha=0.18, linewidth=0)
            ax.plot(curve.sizes, mean, color=hue, marker="o", markersize=4, label=curve.demonstrator)
        ours = task in TASKS or task == "custom"
        if ours and curves[0].horizon == 1:
            ax.axhline(noise_floor(), color="0.45", linewidth=1, linestyle="--", label="noise alone")
        figures.tidy(ax)
        ax.set_xscale("log")
        ticks = figures.unique([str(size) for c in curves if c.task == task for size in c.sizes])
        ax.set_xticks([int(tick) for tick in ticks], ticks)
        ax.set_xticks([], minor=True)
        ax.set(xlabel="training demonstrations", ylabel="prediction error" + (" (px)" if ours else ""))
        ax.set_ylim(bottom=0)
        ax.set_title(figures.title(task), fontsize=12)
    axes[0].legend(frameon=False)
    return figure


def _mean_std(values: Floats) -> tuple[Floats, Floats]:
    return values.mean(axis=1), values.std(axis=1)


class Point(NamedTuple):
    """A sweep's agents of one task, demonstrator and number of demonstrations."""

    task: str
    demonstrator: str
    demos: int
    seeds: int
    error: float  # of the state predictor on held-out episodes, mean over subsets
    goal_ratio: float  # of the agents, mean over seeds at the best checkpoint


class Correlation(NamedTuple):
    """Rank correlation of prediction error and performance."""

    points: list[Point]
    spearman: float
    p: float  # two-sided


def sweep_correlation(
    results: Sequence[Path], datasets: Sequence[DemoDataset], subsets: int = 50, agent: str = "pidm",
    *, rng: np.random.Generator,
) -> Correlation:  # fmt: skip
    """Prediction error against rollout performance, over folders that `pidm-nav sweep` wrote.

    Args:
        results: the folders.
        datasets: the demonstrations they were trained on, to measure the predictor's error with.
        subsets: random subsets a size.
        agent: whose performance.
        rng: draws the subsets.
    """
    from scipy.stats import spearmanr

    from pidm_nav.experiments.curves import mean_curve, seed_scores
    from pidm_nav.experiments.results import make_curves, read_manifest, read_results

    known = {(d.task, figures.demonstrator(d)): d for d in datasets}
    points = []
    for folder in results:
        made_by = _sweep_demonstrator(read_manifest(folder))
        for curve in make_curves(read_results(folder)[0], made_by):
            if curve.agent != agent:
                continue
            if (curve.task, made_by) not in known:
                raise ValueError(
                    f"the sweep in '{folder}' learned {curve.task} from {made_by} demonstrations, "
                    "which were not given: add them to --demos"
                )
            dataset = known[curve.task, made_by]
            sizes = [size for size in curve.sizes if size < len(dataset)]  # with all, none is held out
            errors = error_curve(dataset, sizes=sizes, subsets=subsets, rng=rng).distance.mean(axis=1)
            ratios, seeds = mean_curve(curve), np.isfinite(seed_scores(curve)).sum(axis=1)
            points += [
                Point(curve.task, made_by, size, int(n), float(error), float(ratio))
                for size, n, error, ratio in zip(sizes, seeds, errors, ratios, strict=False)
                if np.isfinite(ratio)
            ]
    if len(points) < 3:
        raise ValueError(
            f"the sweeps hold {len(points)} results of {agent} with held-out demonstrations: 3 are needed"
        )
    rank = spearmanr([point.error for point in points], [point.goal_ratio for point in points])
    return Correlation(points, float(rank.statistic), float(rank.pvalue))


def _sweep_demonstrator(manifest: Mapping[str, Any]) -> str:
    """Human, A* or another, from a sweep's manifest."""
    made_by = str(manifest["demos_from"])
    return {"astar": "A*", "paper": "human"}.get(made_by, made_by)


def plot_correlation(correlation: Correlation) -> Figure:
    """Performance against prediction error: a marker a task, a colour a demonstrator, numbers for sizes."""
    from matplotlib.lines import Line2D

    points = correlation.points
    tasks, names = (figures.unique([getattr(p, key) for p in points]) for key in ("task", "demonstrator"))
    figure, (ax,) = figures.panels(1, width=7.2, height=4.8)
    for point in points:
        marker, hue = figures.MARKERS[tasks.index(point.task) % 6], figures.colour(point.demonstrator, names)
        style = {"color": hue, "markeredgecolor": "white", "markersize": 9, "alpha": 0.9}
        ax.plot(point.error, point.goal_ratio, marker, **style)
        ax.annotate(str(point.demos), (point.error, point.goal_ratio), (5, 4), textcoords="offset points",
                    fontsize=7, color="0.4")  # fmt: skip
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
    ax.legend(handles=handles, frameon=False, fontsize=9)
    return figure
