"""How good is a state predictor on episodes it has not seen? The paper's Figures 7b and 7d, and Appendix D.

A predictor is fitted on n episodes and asked about every step of the others. An error is the Euclidean distance
between predicted and true future observation, in raw numbers (pixels; a wrong reached flag counts as one).
The noise of the environment bounds it: two draws of the same step lie `noise_floor` px apart on average, and
the nearest neighbour's future is such a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import figures
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.physics import SPEED

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
        ticks = sorted({size for c in curves if c.task == task for size in c.sizes})
        shown = [size for size, after in zip(ticks, [*ticks[1:], np.inf], strict=True) if after > 1.2 * size]
        ax.set_xticks(shown, [str(size) for size in shown])  # 40 would lie under 45
        ax.set_xticks([], minor=True)
        ax.set(xlabel="training demonstrations", ylabel="prediction error" + (" (px)" if ours else ""))
        ax.set_ylim(bottom=0)
        ax.set_title(figures.title(task), fontsize=12)
    axes[0].legend(frameon=False)
    return figure


def _mean_std(values: Floats) -> tuple[Floats, Floats]:
    return values.mean(axis=1), values.std(axis=1)
