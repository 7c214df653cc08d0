"""What the analyses' figures and tables share: names and colours of demonstrators, panels, atomic files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import atomic_file
from pidm_nav.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pidm_nav.world2d.layout import Layout

Row = dict[str, Any]
# Blue and orange are the paper's for people and the planner.
COLOURS = {"human": "#1f77b4", "A*": "#ff7f0e", "human-like": "#9467bd"}
OTHERS = ("#2ca02c", "#8c564b", "#e377c2", "#17becf", "#bcbd22")
MARKERS = ("o", "s", "D", "^", "v", "P")


def demonstrator(dataset: DemoDataset) -> str:
    """Who made a dataset: human, A*, human-like, or what its source says."""
    made_by = str(dataset.source.get("made_by", "unknown"))
    plain = made_by.lower().replace("_", "-")
    if "human-like" in plain or "humanlike" in plain:
        return "human-like"
    if "astar" in plain or "a*" in plain:
        return "A*"
    return "human" if "human" in plain else made_by


def colour(name: str, names: Sequence[str]) -> str:
    """A demonstrator's colour among all that a figure shows."""
    if name in COLOURS:
        return COLOURS[name]
    others = [each for each in names if each not in COLOURS]
    return OTHERS[others.index(name) % len(OTHERS)]


def title(task: str) -> str:
    """A task as figures call it."""
    return TASKS[task].title if task in TASKS else task


def unique(items: Sequence[str]) -> list[str]:
    """Each once, in the order they first come."""
    return list(dict.fromkeys(items))


def panels(count: int, width: float = 4.6, height: float = 4.6) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, two a row: GitHub shows figures about 900 pixels wide."""
    from matplotlib.figure import Figure

    columns = min(count, 2)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def draw_room(ax: Axes, layout: Layout) -> None:
    """The map without a frame, its goals' numbers readable over marks and arrows."""
    from matplotlib.patheffects import withStroke

    from pidm_nav.world2d.render import draw_map

    draw_map(ax, layout)
    for number in ax.texts:
        number.set(path_effects=[withStroke(linewidth=2.5, foreground="white")], fontsize=9, fontweight="bold")
        number.set_zorder(9)
    ax.spines[:].set_visible(False)


def tidy(ax: Axes) -> None:
    """A plain plot: light grid, no upper and right line."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.92")
    ax.set_axisbelow(True)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower() or "png")


def save_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a CSV whole or not at all; numbers keep six digits."""
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=unique([key for row in rows for key in row]))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
