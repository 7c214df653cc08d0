"""Plots of episodes, demonstrations and results, for their `plot` and for notebooks."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pidm_nav.demos.dataset import DemoDataset, infer_task
from pidm_nav.demos.traces import plot_traces
from pidm_nav.plots import demonstrator_title, draw_episodes, html, panels, plot_episodes, task_title
from pidm_nav.rollouts.comparison import Comparison
from pidm_nav.rollouts.episode import Episode
from pidm_nav.rollouts.evaluation import EvalResult
from pidm_nav.tasks import TASKS, known_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["html", "plot"]


@singledispatch
def plot(drawn: object) -> Figure:
    """Plot paths on the map or, without a map, returns over time."""
    raise TypeError(f"{type(drawn).__name__} cannot be plotted: plot episodes, demonstrations or results")


@plot.register(Episode)
def _(episode: Episode) -> Figure:
    task = infer_task(episode.observations)  # an episode does not name its task
    return plot_episodes([episode], TASKS[task].layout() if task else None, "")


@plot.register(EvalResult)
def _(result: EvalResult) -> Figure:
    return plot_episodes(result.episodes, result.drawn_layout, result.task.title)


@plot.register(Comparison)
def _(comparison: Comparison) -> Figure:
    """Plot the episodes of each policy in one panel."""
    layout = comparison.first.drawn_layout
    figure, axes = panels(len(comparison.results), width=4.2, height=4.75 if layout else 3.2, columns=4)
    for ax, (name, result) in zip(axes, comparison.results.items(), strict=True):
        draw_episodes(ax, result.episodes, layout)
        ax.set_title(f"{name}: {comparison.metric} {comparison.scores(name).mean():.2f}", fontsize=12)
    return figure


@plot.register(DemoDataset)
def _(dataset: DemoDataset) -> Figure:
    task = known_task(dataset.task)
    placed = all(episode.infos.get("states", episode.observations).ndim == 2 for episode in dataset)
    if task is not None and task.has_2d_state and placed:
        return plot_traces({demonstrator_title(dataset): dataset})
    return plot_episodes(dataset.episodes, None, task_title(dataset.task))
