"""Plots of demonstrated paths on their maps, as in the paper's Figure 4; 3D tasks are seen from above."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_layout, demo_states
from pidm_nav.plots import demonstrator_colors, draw_room, legend_entries, panels, task_title
from pidm_nav.tasks import find_task, known_task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import POSITION
from pidm_nav.world3d.levels import UNITS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 10  # px


def plot_traces(datasets: Mapping[str, DemoDataset]) -> Figure:
    """Plot the paths of labeled datasets: one panel per map, one color per demonstrator."""
    from matplotlib.collections import LineCollection

    groups: dict[Layout, dict[str, DemoDataset]] = {}
    for label, dataset in datasets.items():
        if known_task(dataset.task) is None:
            raise ValueError(f"{dataset.task} has no map to draw: give demonstrations of a navigation task")
        groups.setdefault(demo_layout(dataset), {})[label] = dataset
    figure, axes = panels(len(groups), width=4.2, height=4.75)
    for ax, (layout, members) in zip(axes, groups.items(), strict=True):
        draw_room(ax, layout)
        entries = {}
        for (label, dataset), color in zip(members.items(), demonstrator_colors(members.values()), strict=True):
            traces = [_trace(dataset, episode, layout) for episode in range(len(dataset))]
            visited = len(np.unique(np.concatenate(traces) // CELL, axis=0))
            # datasets that cover more of the map are drawn below the others, which they would hide
            style: Any = {"zorder": 2 + 0.9 / (1 + visited), "alpha": float(np.clip(14 / len(traces), 0.3, 0.9))}
            ax.add_collection(LineCollection(traces, colors=color, linewidths=0.8, capstyle="round", **style))
            entries[f"{label} ({len(traces)})".replace("$", r"\$")] = color  # "$" would start a formula
        ax.set_title(task_title(next(iter(members.values())).task), fontsize=12)
        place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2, "handlelength": 1.4}
        ax.legend(handles=legend_entries(entries, linewidth=2.5), frameon=False, fontsize=9, **place)
    return figure


def _trace(dataset: DemoDataset, episode: int, layout: Layout) -> NDArray[Any]:
    """Return the positions (T+1, 2) of an episode in pixels of its map."""
    positions = demo_states(dataset, episode)[:, POSITION]
    if find_task(dataset.task).has_2d_state:
        return positions
    return [0.0, layout.room_size[1]] + positions / (UNITS, -UNITS)  # in 3D, y points up
