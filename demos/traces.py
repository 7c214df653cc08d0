"""The traces of demonstrations over their maps, as in the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_layout, demo_states
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.layout import Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22")
COLUMNS = 4
CELL = 10  # px


def plot_traces(datasets: Mapping[str, DemoDataset]) -> Figure:
    """A figure of labelled datasets: a panel for each map, a colour for each dataset on it."""
    from matplotlib.figure import Figure

    panels: dict[Layout, dict[str, DemoDataset]] = {}
    for label, dataset in datasets.items():
        panels.setdefault(demo_layout(dataset), {})[label] = dataset
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 4.75 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax, (layout, members) in zip(axes, panels.items(), strict=False):
        _draw_panel(ax, layout, members)
    return figure


def _draw_panel(ax: Axes, layout: Layout, datasets: Mapping[str, DemoDataset]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    from pidm_nav.world2d.render import draw_map

    draw_map(ax, layout)
    for number in ax.texts:
        number.set(path_effects=[withStroke(linewidth=2.5, foreground="white")], fontsize=9, fontweight="bold")
    handles = []
    for index, (label, dataset) in enumerate(datasets.items()):
        traces = [demo_states(dataset, episode)[:, :2] for episode in range(len(dataset))]
        colour = COLOURS[index % len(COLOURS)]
        alpha = float(np.clip(14 / len(traces), 0.3, 0.9))
        # The wider a dataset spreads, the deeper it lies: a narrow one would vanish under it.
        depth = 2 + 0.9 / (1 + _coverage(traces))
        ax.add_collection(
            LineCollection(traces, colors=colour, linewidths=0.8, alpha=alpha, zorder=depth, capstyle="round")
        )
        handles.append(Line2D([], [], color=colour, linewidth=2.5, label=f"{label} ({len(traces)})"))
    task = TASKS.get(next(iter(datasets.values())).task)
    ax.set_title(task.title if task else "Custom map", fontsize=12)
    ax.spines[:].set_visible(False)
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    ax.legend(handles=handles, ncols=2, frameon=False, fontsize=9, handlelength=1.4, **place)


def _coverage(traces: list[NDArray[np.float32]]) -> int:
    """Cells that the traces visit."""
    return len(np.unique(np.concatenate(traces) // CELL, axis=0))
