"""How good is a state predictor on episodes it has not seen? The paper's Figures 7b and 7d, and Appendix D.

A predictor is fitted on n episodes and asked about every step of the others. An error is the Euclidean distance
between predicted and true future observation, in raw numbers (pixels; a wrong reached flag counts as one).
The noise of the environment bounds it: two draws of the same step lie NOISE_FLOOR px apart on average, and
the nearest neighbor's future is such a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.analysis.clusters import Array, Floats, has_states
from pidm_nav.analysis.tables import Finding, Row
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.plots import color_by_demonstrator, draw_band, set_ticks, task_panels, tidy
from pidm_nav.world2d.physics import SPEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.agents.predictors import StatePredictor

MakePredictor = Callable[[], "StatePredictor"]
SIZES = (1, 2, 5, 10, 20, 30, 40, 45)
# The mean distance in px of two draws of the same step: a Rayleigh mean with sqrt(2) times the noise of 0.2.
NOISE_FLOOR = float(SPEED * 0.2 * np.sqrt(np.pi))


class Errors(NamedTuple):
    """Errors of one predictor on one set of held-out episodes."""

    distance: float  # mean Euclidean distance
    squared: float  # mean squared distance
    wrong_goals: float  # fraction of futures with a wrong number of goals reached; nan without goals


def predictor_maker(name: str | MakePredictor, dataset: DemoDataset) -> MakePredictor:
    """Return a function that makes new predictors of a name in `PREDICTORS`, for observations like the dataset's."""
    import torch

    from pidm_nav.agents.networks import Scale
    from pidm_nav.agents.predictors import PREDICTORS

    if not isinstance(name, str):
        return name
    if name not in PREDICTORS:
        raise ValueError(f"no predictor is called '{name}': choose one of {', '.join(PREDICTORS)}")
    rows = np.concatenate([episode.observations for episode in dataset])
    scale = Scale(spaces.Box(-np.inf, np.inf, rows.shape[1:], np.float32))
    scale.fit(rows)

    def make() -> StatePredictor:
        with torch.random.fork_rng(devices=[]):  # equal first weights each time, whatever was drawn before
            torch.manual_seed(0)
            return PREDICTORS[name](scale)

    return make


def predict_episodes(predictor: StatePredictor, dataset: DemoDataset) -> Array:
    """Return what a predictor says (M, D) at each step of each episode, as if an agent lived through them."""
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


def steps_to_count(dataset: DemoDataset, horizon: int, clamp_end: bool) -> NDArray[np.bool_]:
    """Return which steps (M,) have a future within their episode; with `clamp_end`, all steps count."""
    lengths = np.array([len(episode) for episode in dataset])
    if horizon > lengths.max():
        raise ValueError(f"no episode has {horizon} steps, the longest has {lengths.max()}: choose a shorter horizon")
    transitions = dataset.transitions(horizon)
    return np.asarray(clamp_end | (transitions.step + horizon <= lengths[transitions.episode]))


def prediction_errors(
    predictor: StatePredictor, held_out: DemoDataset, horizon: int = 1, clamp_end: bool = True
) -> Errors:
    """Measure the errors of a predictor, fitted with the same horizon, on episodes it has not seen."""
    counted = steps_to_count(held_out, horizon, clamp_end)
    difference = predict_episodes(predictor, held_out).astype(np.float64) - held_out.transitions(horizon).future
    squared = np.einsum("nd,nd->n", difference, difference)[counted]
    flags = list(held_out.goal_flags)
    wrong = float((difference[counted][:, flags].sum(axis=1) != 0).mean()) if flags else float("nan")
    return Errors(float(np.sqrt(squared).mean()), float(squared.mean()), wrong)


@dataclass(frozen=True, eq=False)
class ErrorCurve(Finding):
    """Errors (sizes, subsets) of a predictor against the number of training demonstrations."""

    predictor: str
    horizon: int
    sizes: tuple[int, ...]
    distance: Floats
    squared: Floats
    wrong_goals: Floats

    def columns(self) -> Row:
        """Return one entry per size: mean and standard deviation over subsets."""
        columns: Row = {"predictor": self.predictor, "horizon": self.horizon, "demos": self.sizes}
        columns |= {"subsets": self.distance.shape[1]}
        columns |= {"error": self.distance.mean(axis=1), "error_std": self.distance.std(axis=1)}
        return columns | {"squared_error": self.squared.mean(axis=1), "wrong_goals": self.wrong_goals.mean(axis=1)}


def error_curve(
    dataset: DemoDataset,
    predictor: str | MakePredictor = "nearest",
    sizes: Sequence[int] | None = None,
    subsets: int = 50,
    horizon: int = 1,
    *,
    rng: np.random.Generator,
) -> ErrorCurve:
    """Measure errors on held-out episodes for random subsets of each size; sizes default to those in SIZES that fit."""
    sizes = [size for size in SIZES if size < len(dataset)] if sizes is None else sizes
    if not sizes or min(sizes) < 1 or max(sizes) >= len(dataset):
        remedy = f"choose 1 to {len(dataset) - 1}, as at least one is held out"
        raise ValueError(f"sizes {tuple(sizes)} do not fit {len(dataset)} demonstrations: {remedy}")
    if subsets < 1:
        raise ValueError(f"subsets is {subsets}: at least one is needed")
    steps_to_count(dataset, horizon, clamp_end=True)  # refuses a horizon that no episode has, before any work
    make = predictor_maker(predictor, dataset)
    errors = np.empty((3, len(sizes), subsets))
    for i, size in enumerate(sizes):
        for j in range(subsets):
            training, held_out = dataset.split(size, rng)
            errors[:, i, j] = prediction_errors(make().fit(training, horizon), held_out, horizon)
    return ErrorCurve(dataset, make().name, horizon, tuple(sizes), *errors)


def plot_error_curves(curves: Sequence[ErrorCurve]) -> Figure:
    """Plot the error against demonstrations: one panel per task, bands of one standard deviation."""
    colors, (figure, parts) = color_by_demonstrator(curves), task_panels(curves)
    for ax, own in parts:
        for curve in own:
            draw_band(ax, curve.sizes, curve.distance, colors[curve.demonstrator], curve.demonstrator)
        in_pixels = has_states(own[0].dataset)
        if in_pixels and own[0].horizon == 1:
            ax.axhline(NOISE_FLOOR, color="0.45", linewidth=1, linestyle="--", label="noise alone")
        tidy(ax)
        ax.set_xscale("log")
        sizes = sorted({size for curve in own for size in curve.sizes})
        set_ticks(ax.xaxis, [a for a, b in zip(sizes, [*sizes[1:], np.inf], strict=True) if b > 1.2 * a])  # 45 hides 40
        ax.set(xlabel="training demonstrations", ylabel="prediction error" + (" (px)" if in_pixels else ""))
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
    return figure
