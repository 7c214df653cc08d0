"""Prediction errors of state predictors on held-out episodes: the paper's Figures 7b and 7d, and Appendices D and F.

A predictor is fitted to n episodes and tested on every step of the others. An error is the Euclidean distance between
predicted and true future observation, in raw values (pixels; a wrong flag counts as one). Noise bounds the error: two
draws of the same step are NOISE_FLOOR px apart on average. The nearest neighbor's future is such a draw of
p(s_{t+k} | s_t), not its mean, so its squared error is about twice the variance of the future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav import plots
from pidm_nav.analysis.states import Finding, Row, check_states, in_pixels
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.limits import check_number
from pidm_nav.world2d.physics import SPEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pidm_nav.agents.predictors import Predictor

Array = NDArray[Any]
MakePredictor = Callable[[], "Predictor"]
Split = tuple[DemoDataset, DemoDataset]
SIZES = (1, 2, 5, 10, 20, 30, 40, 45)
HORIZONS = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
MAX_TRAINING = 40
MAX_SPLITS = 10_000
# mean distance in px of two draws of the same step: a Rayleigh mean with sqrt(2) times the noise of 0.2
NOISE_FLOOR = float(SPEED * 0.2 * np.sqrt(np.pi))


class Errors(NamedTuple):
    """Errors of a predictor on held-out episodes, or arrays of errors."""

    distance: Any  # mean Euclidean distance
    squared: Any  # mean squared distance
    wrong_goals: Any  # fraction of futures with a wrong number of goals reached; nan without goals


def fit_predictor(name: str | MakePredictor, training: DemoDataset, horizon: int = 1) -> Predictor:
    """Fit a new predictor, given by name with options or by a function, to training episodes."""
    from pidm_nav.agents.registry import make_part

    if not isinstance(name, str):
        return name().fit(training, horizon)
    check_states(training)
    predictor: Predictor = make_part("predictor", name)
    return predictor.fit(training, horizon)


def predict_episodes(predictor: Predictor, dataset: DemoDataset) -> Array:
    """Return the predictions (M, D) at each step of each episode, with the predictor's memory."""
    states = dataset.transitions().state
    lengths = np.array([len(episode) for episode in dataset])
    first = np.cumsum(lengths) - lengths
    predicted = np.empty_like(states)
    memory: Any = None
    for step in range(int(lengths.max())):  # all episodes in parallel; ended ones stay at their last step
        rows = first + np.minimum(step, lengths - 1)
        futures, memory = predictor.predict(states[rows], memory, np.full(len(lengths), step == 0))
        running = step < lengths
        predicted[rows[running]] = futures[running]
    return predicted


def steps_to_count(dataset: DemoDataset, horizon: int, clamp_end: bool) -> NDArray[np.bool_]:
    """Return whether each step (M,) has its future within the episode; with `clamp_end`, all do."""
    lengths = np.array([len(episode) for episode in dataset])
    if horizon > lengths.max():
        raise ValueError(f"horizon is {horizon}, and the longest episode has {lengths.max()} steps: shorten it")
    transitions = dataset.transitions(horizon)
    return np.asarray(clamp_end | (transitions.step + horizon <= lengths[transitions.episode]))


def prediction_errors(predictor: Predictor, held_out: DemoDataset, horizon: int = 1, clamp_end: bool = True) -> Errors:
    """Return the errors of a predictor, fitted with the same horizon, on held-out episodes."""
    counted = steps_to_count(held_out, horizon, clamp_end)
    difference = predict_episodes(predictor, held_out).astype(np.float64) - held_out.transitions(horizon).future
    squared = np.einsum("nd,nd->n", difference, difference)[counted]
    flags = list(held_out.goal_flags)
    wrong = float((difference[counted][:, flags].sum(axis=1) != 0).mean()) if flags else float("nan")
    return Errors(float(np.sqrt(squared).mean()), float(squared.mean()), wrong)


def _measure(
    predictor: str | MakePredictor, splits: Sequence[Sequence[Split]], horizons: Sequence[int], clamp_end: bool = True
) -> Errors:
    """Return the errors (X, N) of new predictors for N splits at each of X settings."""
    errors = np.empty((3, len(splits), len(splits[0])))
    for i, (row, horizon) in enumerate(zip(splits, horizons, strict=True)):
        for j, (training, held_out) in enumerate(row):
            errors[:, i, j] = prediction_errors(
                fit_predictor(predictor, training, horizon), held_out, horizon, clamp_end
            )
    return Errors(*errors)


def error_curve(
    dataset: DemoDataset,
    predictor: str | MakePredictor = "nearest",
    sizes: Sequence[int] | None = None,
    subsets: int = 50,
    horizon: int = 1,
    *,
    rng: np.random.Generator,
) -> Finding:
    """Measure errors on held-out episodes for random training subsets of each size; by default the SIZES that fit."""
    sizes = [size for size in SIZES if size < len(dataset)] if sizes is None else sizes
    if not sizes or min(sizes) < 1 or max(sizes) >= len(dataset):
        most = len(dataset) - 1
        remedy = f"choose 1 to {most}, as at least one is held out" if most else "give at least 2, as one is held out"
        raise ValueError(f"sizes {tuple(sizes)} do not fit {len(dataset)} demonstrations: {remedy}")
    check_number("subsets", subsets, 1, MAX_SPLITS)
    steps_to_count(dataset, horizon, clamp_end=True)  # raises ValueError for a horizon that no episode has
    splits = [[dataset.split(size, rng) for _ in range(subsets)] for size in sizes]
    found = _measure(predictor, splits, [horizon] * len(sizes))
    name = predictor if isinstance(predictor, str) else predictor().name
    table: Row = {"predictor": name, "horizon": horizon, "demos": sizes, "subsets": subsets}
    table |= {"error": found.distance.mean(axis=1), "error_std": found.distance.std(axis=1)}
    table |= {"squared_error": found.squared.mean(axis=1), "wrong_goals": found.wrong_goals.mean(axis=1)}
    return Finding(dataset, table)


@dataclass(frozen=True, kw_only=True)
class HorizonStudy:
    """Options of `horizon_curve`."""

    predictor: Literal["nearest", "time", "learned"] = "nearest"
    """State predictor to test."""
    horizons: tuple[int, ...] = ()
    """Horizons in steps. Default: those of 1,5,10,...,50 within the shortest episode."""
    splits: int = 100
    """Number of random splits into training and held-out episodes, the same for all horizons."""
    training: int | None = None
    """Number of training episodes. Default: four fifths, at most 40."""
    clamp_end: bool = False
    """Also count steps whose future is past the episode's end, with its last state as the future."""


def horizon_curve(dataset: DemoDataset, study: HorizonStudy | None = None, *, rng: np.random.Generator) -> Finding:
    """Measure the prediction error for each horizon; `rng` draws the splits."""
    study = study or HorizonStudy()
    check_states(dataset)
    check_number("splits", study.splits, 1, MAX_SPLITS)
    shortest = min(len(episode) for episode in dataset)
    horizons = study.horizons or tuple(k for k in HORIZONS if k <= shortest)
    training = max(1, min(MAX_TRAINING, len(dataset) * 4 // 5)) if study.training is None else study.training
    splits = [dataset.split(training, rng) for _ in range(study.splits)]
    for horizon in horizons:
        steps_to_count(dataset, horizon, study.clamp_end)  # raises ValueError for a horizon that no episode has
    num_held_out = len(splits[0][1])
    most = sorted(len(episode) for episode in dataset)[num_held_out - 1]  # if the shortest are held out
    if max(horizons) > most:
        given = f"horizons is {max(horizons)}, and the held-out episodes of a split may all have at most {most} steps"
        raise ValueError(f"{given}: choose at most {most}")
    errors = _measure(study.predictor, [splits] * len(horizons), horizons, study.clamp_end)
    table: Row = {"predictor": study.predictor, "horizon": horizons, "splits": study.splits}
    table |= {"squared_error": errors.squared.mean(axis=1), "squared_error_std": errors.squared.std(axis=1)}
    return Finding(dataset, table | {"error": errors.distance.mean(axis=1)})


def plot_error_curves(curves: Sequence[Finding]) -> Figure:
    """Plot the error against demonstrations: one panel per task, bands of one standard deviation."""
    colors, (figure, parts) = plots.color_by_demonstrator(curves), plots.task_panels(curves)
    for ax, own in parts:
        for curve in own:
            columns, who = curve.columns, curve.demonstrator
            plots.draw_band(ax, columns["demos"], columns["error"], columns["error_std"], colors[who], who)
        pixels = in_pixels(own[0].dataset)
        if pixels and own[0].columns["horizon"] == 1:
            ax.axhline(NOISE_FLOOR, color="0.45", linewidth=1, linestyle="--", label="noise alone")
        plots.tidy(ax)
        ax.set_xscale("log")
        sizes = sorted({size for curve in own for size in curve.columns["demos"]})
        shown = [a for a, b in zip(sizes, [*sizes[1:], np.inf], strict=True) if b > 1.2 * a]  # 45 hides 40
        plots.set_ticks(ax.xaxis, shown)
        ax.set(xlabel="training demonstrations", ylabel="prediction error" + (" (px)" if pixels else ""))
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
    return figure


def plot_horizon_curves(curves: Sequence[Finding]) -> Figure:
    """Plot the squared error against k: one panel per task, one color per demonstrator."""
    from matplotlib.ticker import MaxNLocator

    colors, (figure, parts) = plots.color_by_demonstrator(curves), plots.task_panels(curves)
    for ax, own in parts:
        for curve in own:
            columns, who = curve.columns, curve.demonstrator
            plots.draw_band(
                ax, columns["horizon"], columns["squared_error"], columns["squared_error_std"], colors[who], who
            )
        plots.tidy(ax)
        squared = "squared prediction error" + (" (px²)" if in_pixels(own[0].dataset) else "")
        ax.set(xlabel="horizon k (steps)", ylabel=squared, yscale="log")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False)
    return figure
